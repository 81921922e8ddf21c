// Sums of parts, and feedback of what a codec lost: a thread for each element.
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/refusals.h"
#include "kernels/cuda/table.h"
#include "ops/op.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ std::int64_t own_index() { return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; }

template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_scaled(const ops::StepScalars* scalars, const T* x, const float* error, std::int64_t known, std::int64_t count, float* sum) {
  const std::int64_t index = own_index();
  if (index < count) sum[index] = to_f32(x[index]) + (index < known ? scalars->loss_scale * error[index] : 0.0f);
}

__global__ void __launch_bounds__(kThreads)
    keep_lost(const ops::StepScalars* scalars, const float* z, const float* y, std::int64_t count, float* error) {
  const std::int64_t index = own_index();
  if (index >= count) return;
  const float lost = (z[index] - y[index]) / scalars->loss_scale;
  error[index] = isfinite(lost) ? lost : 0.0f;
}

__global__ void __launch_bounds__(kThreads) undo(const ops::StepScalars* scalars, const float* before, std::int64_t count, float* state) {
  const std::int64_t index = own_index();
  if (index < count && scalars->skip != 0) state[index] = before[index];
}

template <typename T, typename R>
__global__ void __launch_bounds__(kThreads) fold_parts(const T* x, std::int64_t members, std::int64_t count, R* sum) {
  const std::int64_t index = own_index();
  if (index >= count) return;
  float total = to_f32(x[index]);
  for (std::int64_t member = 1; member < members; ++member) total += to_f32(x[member * count + index]);
  sum[index] = from_f32<R>(total);
}

const ops::StepScalars* scalars_of(const Call& call) { return call.inputs[0].as<const ops::StepScalars>(); }

void add_error(const Call& call, cudaStream_t stream) {
  const std::int64_t count = call.outputs[0].type.shape.elements();
  with_element(call.inputs[1].type.dtype, [&](auto element) {
    add_scaled<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(scalars_of(call), call.inputs[1].as<const decltype(element)>(),
                                                                     call.inputs[2].as<const float>(), call.inputs[2].type.shape.elements(),
                                                                     count, call.outputs[0].as<float>());
  });
  check_launch("add_error");
}

void keep_error(const Call& call, cudaStream_t stream) {
  const std::int64_t count = call.outputs[0].type.shape.elements();
  keep_lost<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(scalars_of(call), call.inputs[1].as<const float>(),
                                                                  call.inputs[2].as<const float>(), count, call.outputs[0].as<float>());
  check_launch("keep_error");
}

// In place: what is not skipped is there already.
void undo_skipped(const Call& call, cudaStream_t stream) {
  const std::int64_t count = call.outputs[0].type.shape.elements();
  if (call.inputs[1].data != call.outputs[0].data) {
    check(cudaMemcpyAsync(call.outputs[0].data, call.inputs[1].data, static_cast<std::size_t>(count) * sizeof(float),
                          cudaMemcpyDeviceToDevice, stream),
          "undo_skipped");
  }
  undo<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(scalars_of(call), call.inputs[2].as<const float>(), count,
                                                             call.outputs[0].as<float>());
  check_launch("undo_skipped");
}

void sum_parts(const Call& call, cudaStream_t stream) {
  const std::int64_t members = std::get<ops::SumParts>(call.op).members;
  const std::int64_t count = call.outputs[0].type.shape.elements();
  with_element(call.inputs[0].type.dtype, [&](auto from) {
    with_element(call.outputs[0].type.dtype, [&](auto to) {
      fold_parts<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(call.inputs[0].as<const decltype(from)>(), members, count,
                                                                       call.outputs[0].as<decltype(to)>());
    });
  });
  check_launch("sum_parts");
}

constexpr Kernel kKernels[] = {
    {.op = "add_error", .name = "add_error.elements", .refusal = refuse_other_floats, .launch = add_error},
    {.op = "keep_error", .name = "keep_error.elements", .refusal = refuse_other_floats, .launch = keep_error},
    {.op = "undo_skipped", .name = "undo_skipped.elements", .refusal = refuse_other_floats, .launch = undo_skipped},
    {.op = "sum_parts", .name = "sum_parts.elements", .refusal = refuse_other_floats, .launch = sum_parts},
};

}  // namespace

std::span<const Kernel> feedback_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cuda
