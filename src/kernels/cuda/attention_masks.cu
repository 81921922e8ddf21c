#include "kernels/cuda/attention_masks.h"

#include "kernels/cuda/checks.h"
#include "kernels/cuda/elements.cuh"

namespace plimsoll::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// Far below any score, and a number: sums of two of them are no infinity, so that a row of nothing else has no NaN.
constexpr float kUnseen = -1e30f;
constexpr float kUnseenF16 = -3e4f;
constexpr float kBlankStat = 1e30f;

template <typename T>
__global__ void __launch_bounds__(kThreads) fill_bias(MaskedRows rows, float unseen, T* bias) {
  const std::int64_t row = blockIdx.x;  // (batch, query)
  const std::int64_t i = row % rows.length;
  const std::int32_t* segments = rows.segments == nullptr ? nullptr : rows.segments + (row - i);
  const std::int32_t own = segments == nullptr ? 0 : segments[i];
  for (std::int64_t j = threadIdx.x; j < rows.length; j += kThreads) {
    bool sees = rows.window == 0 || j > i - rows.window;
    if (segments != nullptr) sees = sees && own >= 0 && segments[j] == own;
    bias[row * rows.length + j] = from_f32<T>(sees ? 0.0f : unseen);
  }
}

// One block a query; those with a segment have nothing to do.
template <typename T>
__global__ void __launch_bounds__(kThreads) blank_rows(MaskedRows rows, std::int64_t heads, std::int64_t width, T* out, float* stats) {
  const std::int64_t row = blockIdx.x;
  if (rows.segments[row] >= 0) return;
  for (std::int64_t e = threadIdx.x; e < width; e += kThreads) out[row * width + e] = from_f32<T>(0.0f);
  const std::int64_t i = row % rows.length;
  const std::int64_t b = row / rows.length;
  for (std::int64_t h = threadIdx.x; h < heads; h += kThreads) stats[(b * heads + h) * rows.length + i] = -INFINITY;
}

__global__ void __launch_bounds__(kThreads)
    stats_of_runs(MaskedRows rows, std::int64_t heads, std::int64_t per_run, const float* stats, float* of_runs) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= rows.length) return;
  const std::int64_t b = blockIdx.y / heads;
  const std::int64_t h = blockIdx.y % heads;
  const bool blank = rows.segments != nullptr && rows.segments[b * rows.length + t] < 0;
  const std::int64_t to = (h / per_run * rows.batch + b) * per_run + h % per_run;
  of_runs[to * rows.length + t] = blank ? kBlankStat : stats[blockIdx.y * rows.length + t];
}

}  // namespace

void launch_score_bias(const MaskedRows& rows, base::DType dtype, void* bias, cudaStream_t stream) {
  with_element(dtype, [&](auto zero) {
    using T = decltype(zero);
    fill_bias<T><<<static_cast<unsigned>(rows.batch * rows.length), kThreads, 0, stream>>>(
        rows, dtype == base::DType::f16 ? kUnseenF16 : kUnseen, static_cast<T*>(bias));
  });
  check_launch("attention: segments");
}

void launch_blank_rows(const MaskedRows& rows, std::int64_t heads, const Tensor& out, float* stats, cudaStream_t stream) {
  with_element(out.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    blank_rows<T>
        <<<static_cast<unsigned>(rows.batch * rows.length), kThreads, 0, stream>>>(rows, heads, out.type.shape[-1], out.as<T>(), stats);
  });
  check_launch("attention: rows without a segment");
}

void launch_stats_of_runs(const MaskedRows& rows, std::int64_t heads, std::int64_t runs, const float* stats, float* of_runs,
                          cudaStream_t stream) {
  const dim3 grid(blocks_for(rows.length, kThreads), static_cast<unsigned>(rows.batch * heads));
  stats_of_runs<<<grid, kThreads, 0, stream>>>(rows, heads, heads / runs, stats, of_runs);
  check_launch("attention_grad: statistics");
}

}  // namespace plimsoll::kernels::cuda
