// Sums, conversions and activations: one pass over memory, a block of kBlock elements at a time (see convert.h).
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "ops/op.h"

#ifndef PLIMSOLL_KERNELS_CPU_SECOND_OPERANDS
#define PLIMSOLL_KERNELS_CPU_SECOND_OPERANDS
namespace plimsoll::kernels::cpu {

// Of the adjoint of an activation's or a gate's gradient; all apart.
struct SecondOperands {
  const float* arrived;
  const float* dy;
  const float* x;
  float* ddy;
  float* dx;
};

}  // namespace plimsoll::kernels::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

// Outputs may be the inputs themselves, so nothing here is restrict.

void add_block(const float* a, const float* b, float* y, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) store(d, hn::Add(load(d, a + index), load(d, b + index)), y + index);
  for (; index < count; ++index) y[index] = a[index] + b[index];
}

template <ops::ActivationKind kind>
HWY_INLINE void activate(const float* x, float* y, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) store(d, activation<kind>(d, load(d, x + index)), y + index);
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest != 0) store_n(d, activation<kind>(d, load_n(d, x + index, rest)), y + index, rest);
}

template <ops::ActivationKind kind>
HWY_INLINE void activate_grad(const float* dy, const float* x, float* dx, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    store(d, hn::Mul(load(d, dy + index), activation_derivative<kind>(d, load(d, x + index))), dx + index);
  }
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest != 0) {
    const Vector slope = activation_derivative<kind>(d, load_n(d, x + index, rest));
    store_n(d, hn::Mul(load_n(d, dy + index, rest), slope), dx + index, rest);
  }
}

// A vector of pairs holds gates in even lanes and ups in odd ones; two of them make one vector of results.
template <ops::ActivationKind kind>
HWY_INLINE void gate_pairs(const float* x, float* y, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  Vector gate;
  Vector up;
  for (; index + kLanes <= count; index += kLanes) {
    hn::LoadInterleaved2(d, x + 2 * index, gate, up);
    store(d, hn::Mul(activation<kind>(d, gate), up), y + index);
  }
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest == 0) return;
  HWY_ALIGN float pairs[2 * kLanes] = {};
  std::copy_n(x + 2 * index, 2 * rest, pairs);
  hn::LoadInterleaved2(d, pairs, gate, up);
  store_n(d, hn::Mul(activation<kind>(d, gate), up), y + index, rest);
}

template <ops::ActivationKind kind>
HWY_INLINE void gate_pairs_grad(const float* dy, const float* x, float* dx, std::int64_t count) {
  const Tag d;
  std::int64_t index = 0;
  Vector gate;
  Vector up;
  for (; index + kLanes <= count; index += kLanes) {
    hn::LoadInterleaved2(d, x + 2 * index, gate, up);
    const Vector slope = load(d, dy + index);
    hn::StoreInterleaved2(hn::Mul(hn::Mul(slope, up), activation_derivative<kind>(d, gate)), hn::Mul(slope, activation<kind>(d, gate)), d,
                          dx + 2 * index);
  }
  const auto rest = static_cast<std::size_t>(count - index);
  if (rest == 0) return;
  HWY_ALIGN float pairs[2 * kLanes] = {};
  std::copy_n(x + 2 * index, 2 * rest, pairs);
  hn::LoadInterleaved2(d, pairs, gate, up);
  const Vector slope = load_n(d, dy + index, rest);
  hn::StoreInterleaved2(hn::Mul(hn::Mul(slope, up), activation_derivative<kind>(d, gate)), hn::Mul(slope, activation<kind>(d, gate)), d,
                        pairs);
  std::copy_n(pairs, 2 * rest, dx + 2 * index);
}

// n of the vector's lanes.
HWY_INLINE Vector load_some(const float* from, std::int64_t n) {
  const Tag d;
  return n == kLanes ? load(d, from) : load_n(d, from, static_cast<std::size_t>(n));
}

HWY_INLINE void store_some(Vector value, float* to, std::int64_t n) {
  const Tag d;
  if (n == kLanes) return store(d, value, to);
  store_n(d, value, to, static_cast<std::size_t>(n));
}

template <ops::ActivationKind kind>
HWY_INLINE void activate_second(const SecondOperands& operands, std::int64_t count) {
  const Tag d;
  for (std::int64_t index = 0; index < count; index += kLanes) {
    const std::int64_t n = std::min(kLanes, count - index);
    const Vector arrived = load_some(operands.arrived + index, n);
    const Vector x = load_some(operands.x + index, n);
    store_some(hn::Mul(arrived, activation_derivative<kind>(d, x)), operands.ddy + index, n);
    const Vector curve = activation_curve<kind>(d, x);
    store_some(hn::Mul(hn::Mul(arrived, load_some(operands.dy + index, n)), curve), operands.dx + index, n);
  }
}

// Pairs are made whole vectors by the caller's buffers, which are kPairs longer than what they hold.
template <ops::ActivationKind kind>
HWY_INLINE void gate_second(const SecondOperands& operands, std::int64_t count) {
  const Tag d;
  Vector gate;
  Vector up;
  Vector at_gate;
  Vector at_up;
  for (std::int64_t index = 0; index < count; index += kLanes) {
    const std::int64_t n = std::min(kLanes, count - index);
    hn::LoadInterleaved2(d, operands.x + 2 * index, gate, up);
    hn::LoadInterleaved2(d, operands.arrived + 2 * index, at_gate, at_up);
    const Vector dy = load_some(operands.dy + index, n);
    const Vector slope = activation_derivative<kind>(d, gate);
    const Vector by_gate = hn::Mul(at_gate, up);
    store_some(hn::MulAdd(by_gate, slope, hn::Mul(at_up, activation<kind>(d, gate))), operands.ddy + index, n);
    const Vector bent = hn::MulAdd(by_gate, activation_curve<kind>(d, gate), hn::Mul(at_up, slope));
    hn::StoreInterleaved2(hn::Mul(dy, bent), hn::Mul(hn::Mul(dy, at_gate), slope), d, operands.dx + 2 * index);
  }
}

void activation_second_block(ops::ActivationKind which, const SecondOperands& operands, std::int64_t count) {
  with_activation(which, [&](auto kind) HWY_ATTR { activate_second<kind>(operands, count); });
}

void gate_second_block(ops::ActivationKind which, const SecondOperands& operands, std::int64_t count) {
  with_activation(which, [&](auto kind) HWY_ATTR { gate_second<kind>(operands, count); });
}

void activation_block(ops::ActivationKind which, const float* x, float* y, std::int64_t count) {
  with_activation(which, [&](auto kind) HWY_ATTR { activate<kind>(x, y, count); });
}

void activation_grad_block(ops::ActivationKind which, const float* dy, const float* x, float* dx, std::int64_t count) {
  with_activation(which, [&](auto kind) HWY_ATTR { activate_grad<kind>(dy, x, dx, count); });
}

void gate_block(ops::ActivationKind which, const float* x, float* y, std::int64_t count) {
  with_activation(which, [&](auto kind) HWY_ATTR { gate_pairs<kind>(x, y, count); });
}

void gate_grad_block(ops::ActivationKind which, const float* dy, const float* x, float* dx, std::int64_t count) {
  with_activation(which, [&](auto kind) HWY_ATTR { gate_pairs_grad<kind>(dy, x, dx, count); });
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(add_block);
HWY_EXPORT(activation_block);
HWY_EXPORT(activation_grad_block);
HWY_EXPORT(gate_block);
HWY_EXPORT(gate_grad_block);
HWY_EXPORT(activation_second_block);
HWY_EXPORT(gate_second_block);

namespace {

// Elements that pay for waking a thread.
constexpr std::int64_t kGrain = 8 * kBlock;

// Calls body(first, count) for every block of `elements`, on call.threads threads.
template <typename Body>
void for_each_block(const Call& call, std::int64_t elements, const Body& body) {
  parallel_ranges(call.threads, elements, kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t first = begin; first < end; first += kBlock) body(first, std::min(kBlock, end - first));
  });
}

void run_add(const Call& call) {
  const Tensor& y = call.outputs[0];
  for_each_block(call, y.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float a_buffer[kBlock], b_buffer[kBlock];
    const float* a = read_f32(call.inputs[0], first, count, a_buffer);
    const float* b = read_f32(call.inputs[1], first, count, b_buffer);
    float* sum = target_f32(y, first, a_buffer);
    HWY_DYNAMIC_DISPATCH(add_block)(a, b, sum, count);
    finish_f32(y, first, count, sum);
  });
}

void run_cast(const Call& call) {
  const Tensor& y = call.outputs[0];
  for_each_block(call, y.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float buffer[kBlock];
    const float* x = read_f32(call.inputs[0], first, count, target_f32(y, first, buffer));
    narrow(y.type.dtype, x, element_address(y, first), count);
  });
}

void run_activation(const Call& call) {
  const ops::ActivationKind kind = std::get<ops::Activation>(call.op).kind;
  const Tensor& y = call.outputs[0];
  for_each_block(call, y.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float buffer[kBlock];
    const float* x = read_f32(call.inputs[0], first, count, buffer);
    float* made = target_f32(y, first, buffer);
    HWY_DYNAMIC_DISPATCH(activation_block)(kind, x, made, count);
    finish_f32(y, first, count, made);
  });
}

void run_activation_grad(const Call& call) {
  const ops::ActivationKind kind = std::get<ops::ActivationGrad>(call.op).kind;
  const Tensor& dx = call.outputs[0];
  for_each_block(call, dx.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float dy_buffer[kBlock], x_buffer[kBlock];
    const float* dy = read_f32(call.inputs[0], first, count, dy_buffer);
    const float* x = read_f32(call.inputs[1], first, count, x_buffer);
    float* made = target_f32(dx, first, dy_buffer);
    HWY_DYNAMIC_DISPATCH(activation_grad_block)(kind, dy, x, made, count);
    finish_f32(dx, first, count, made);
  });
}

// Pairs never straddle rows, so a gate is one over the whole tensor.
void run_gate(const Call& call) {
  const ops::ActivationKind kind = std::get<ops::Gate>(call.op).kind;
  const Tensor& y = call.outputs[0];
  for_each_block(call, y.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float x_buffer[2 * kBlock], y_buffer[kBlock];
    const float* x = read_f32(call.inputs[0], 2 * first, 2 * count, x_buffer);
    float* made = target_f32(y, first, y_buffer);
    HWY_DYNAMIC_DISPATCH(gate_block)(kind, x, made, count);
    finish_f32(y, first, count, made);
  });
}

void run_gate_grad(const Call& call) {
  const ops::ActivationKind kind = std::get<ops::GateGrad>(call.op).kind;
  const Tensor& dy = call.inputs[0];
  const Tensor& dx = call.outputs[0];
  for_each_block(call, dy.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float dy_buffer[kBlock], x_buffer[2 * kBlock];
    const float* slope = read_f32(dy, first, count, dy_buffer);
    const float* x = read_f32(call.inputs[1], 2 * first, 2 * count, x_buffer);
    float* made = target_f32(dx, 2 * first, x_buffer);
    HWY_DYNAMIC_DISPATCH(gate_grad_block)(kind, slope, x, made, count);
    finish_f32(dx, 2 * first, 2 * count, made);
  });
}

void run_activation_grad_grad(const Call& call) {
  const ops::ActivationKind kind = std::get<ops::ActivationGradGrad>(call.op).kind;
  const Tensor& ddy = call.outputs[0];
  const Tensor& dx = call.outputs[1];
  for_each_block(call, dx.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float buffers[5][kBlock];
    const SecondOperands operands{.arrived = read_f32(call.inputs[0], first, count, buffers[0]),
                                  .dy = read_f32(call.inputs[1], first, count, buffers[1]),
                                  .x = read_f32(call.inputs[2], first, count, buffers[2]),
                                  .ddy = target_f32(ddy, first, buffers[3]),
                                  .dx = target_f32(dx, first, buffers[4])};
    HWY_DYNAMIC_DISPATCH(activation_second_block)(kind, operands, count);
    finish_f32(ddy, first, count, operands.ddy);
    finish_f32(dx, first, count, operands.dx);
  });
}

// Through buffers, so that pairs can be taken a whole vector at a time.
void run_gate_grad_grad(const Call& call) {
  constexpr std::int64_t kPairs = 2 * kBlock + 64;
  const ops::ActivationKind kind = std::get<ops::GateGradGrad>(call.op).kind;
  const Tensor& ddy = call.outputs[0];
  const Tensor& dx = call.outputs[1];
  for_each_block(call, ddy.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    alignas(64) float arrived[kPairs], x[kPairs], dx_made[kPairs], dy_buffer[kBlock], ddy_buffer[kBlock];
    const auto fetch = [&](const Tensor& from, float* to) {
      const float* read = read_f32(from, 2 * first, 2 * count, to);
      if (read != to) std::copy_n(read, 2 * count, to);
      std::fill(to + 2 * count, to + kPairs, 0.0f);
    };
    fetch(call.inputs[0], arrived);
    fetch(call.inputs[2], x);
    const SecondOperands operands{.arrived = arrived,
                                  .dy = read_f32(call.inputs[1], first, count, dy_buffer),
                                  .x = x,
                                  .ddy = target_f32(ddy, first, ddy_buffer),
                                  .dx = dx_made};
    HWY_DYNAMIC_DISPATCH(gate_second_block)(kind, operands, count);
    finish_f32(ddy, first, count, operands.ddy);
    float* made = target_f32(dx, 2 * first, dx_made);
    if (made != dx_made) std::copy_n(dx_made, 2 * count, made);
    finish_f32(dx, 2 * first, 2 * count, made);
  });
}

void run_repeat_rows(const Call& call) {
  const Tensor& y = call.outputs[0];
  const std::int64_t width = y.type.shape[-1];
  parallel_ranges(call.threads, y.type.shape.rows(), std::max<std::int64_t>(1, kGrain / width),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    for (std::int64_t first = 0; first < width; first += kBlock) {
                      const std::int64_t count = std::min(kBlock, width - first);
                      alignas(64) float buffer[kBlock];
                      const float* row = read_f32(call.inputs[0], first, count, buffer);
                      for (std::int64_t at = begin; at < end; ++at)
                        narrow(y.type.dtype, row, element_address(y, at * width + first), count);
                    }
                  });
}

void run_pad(const Call& call) {
  const Tensor& y = call.outputs[0];
  const std::int64_t valid = std::get<ops::Pad>(call.op).valid;
  if (call.inputs[0].data != y.data) std::memcpy(y.data, call.inputs[0].data, static_cast<std::size_t>(y.type.bytes()));
  std::memset(element_address(y, valid), 0, static_cast<std::size_t>((y.type.shape.elements() - valid) * base::size_of(y.type.dtype)));
}

void run_accumulate(const Call& call) {
  if (std::get<ops::Accumulate>(call.op).accumulate) return run_add(call);
  const Tensor& y = call.outputs[0];
  const std::int64_t size = base::size_of(y.type.dtype);
  for_each_block(call, y.type.shape.elements(), [&](std::int64_t first, std::int64_t count) {
    std::memcpy(element_address(y, first), element_address(call.inputs[0], first), static_cast<std::size_t>(count * size));
  });
}

// Rows of some columns, between a tensor that has only these and a wider one.
template <typename Row>
void for_each_row(const Call& call, const Tensor& narrow, const Row& row) {
  const std::int64_t width = narrow.type.shape[-1];
  const std::int64_t rows = narrow.type.shape.elements() / width;
  parallel_ranges(call.threads, rows, std::max<std::int64_t>(1, kGrain / width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t index = begin; index < end; ++index) row(index);
  });
}

void run_take_columns(const Call& call) {
  const Tensor& x = call.inputs[0];
  const Tensor& y = call.outputs[0];
  const std::int64_t first = std::get<ops::TakeColumns>(call.op).first;
  const auto bytes = static_cast<std::size_t>(y.type.shape[-1] * base::size_of(y.type.dtype));
  for_each_row(call, y, [&](std::int64_t row) {
    std::memcpy(element_address(y, row * y.type.shape[-1]), element_address(x, row * x.type.shape[-1] + first), bytes);
  });
}

void run_put_columns(const Call& call) {
  const auto& op = std::get<ops::PutColumns>(call.op);
  const Tensor& x = call.inputs[0];
  const Tensor& y = call.outputs[0];
  const std::int64_t width = x.type.shape[-1];
  const auto bytes = static_cast<std::size_t>(width * base::size_of(y.type.dtype));
  for_each_row(call, x, [&](std::int64_t row) {
    std::memcpy(element_address(y, row * op.columns + op.first), element_address(x, row * width), bytes);
  });
}

void run_put_part(const Call& call) {
  const auto& op = std::get<ops::PutPart>(call.op);
  const Tensor& part = call.inputs[0];
  const Tensor& whole = call.outputs[0];
  const auto size = static_cast<std::size_t>(base::size_of(part.type.dtype));
  if (!op.into) std::memset(whole.data, 0, static_cast<std::size_t>(whole.type.bytes()));
  ops::for_each_stretch(op.part, part.type.shape, !op.without_tail, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
    std::memcpy(element_address(whole, in_whole), element_address(part, in_part), static_cast<std::size_t>(count) * size);
  });
}

void run_take_part(const Call& call) {
  const Tensor& whole = call.inputs[0];
  const Tensor& part = call.outputs[0];
  const auto size = static_cast<std::size_t>(base::size_of(part.type.dtype));
  ops::for_each_stretch(
      std::get<ops::TakePart>(call.op).part, part.type.shape, true, [&](std::int64_t in_whole, std::int64_t in_part, std::int64_t count) {
        std::memcpy(element_address(part, in_part), element_address(whole, in_whole), static_cast<std::size_t>(count) * size);
      });
}

constexpr std::array kKernels{
    Kernel{.op = "put_part", .name = "put_part.memory", .run = run_put_part},
    Kernel{.op = "take_part", .name = "take_part.memory", .run = run_take_part},
    Kernel{.op = "take_columns", .name = "take_columns.memory", .run = run_take_columns},
    Kernel{.op = "put_columns", .name = "put_columns.memory", .run = run_put_columns},
    Kernel{.op = "pad", .name = "pad.memory", .run = run_pad},
    Kernel{.op = "accumulate", .name = "accumulate.simd", .refusal = refuse_other_floats, .run = run_accumulate},
    Kernel{.op = "add", .name = "add.simd", .refusal = refuse_other_floats, .run = run_add},
    Kernel{.op = "cast", .name = "cast.simd", .refusal = refuse_other_floats, .run = run_cast},
    Kernel{.op = "activation", .name = "activation.simd", .refusal = refuse_other_floats, .run = run_activation},
    Kernel{.op = "activation_grad", .name = "activation_grad.simd", .refusal = refuse_other_floats, .run = run_activation_grad},
    Kernel{.op = "gate", .name = "gate.simd", .refusal = refuse_other_floats, .run = run_gate},
    Kernel{.op = "gate_grad", .name = "gate_grad.simd", .refusal = refuse_other_floats, .run = run_gate_grad},
    Kernel{
        .op = "activation_grad_grad", .name = "activation_grad_grad.simd", .refusal = refuse_other_floats, .run = run_activation_grad_grad},
    Kernel{.op = "gate_grad_grad", .name = "gate_grad_grad.simd", .refusal = refuse_other_floats, .run = run_gate_grad_grad},
    Kernel{.op = "repeat_rows", .name = "repeat_rows.simd", .refusal = refuse_other_floats, .run = run_repeat_rows},
};

}  // namespace

std::span<const Kernel> elementwise_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif
