#include "kernels/cuda/attention_masks.h"

#include "kernels/cuda/checks.h"
#include "kernels/cuda/dropout.cuh"
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

// A thread has four keys of a query, whose words one call makes.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    fill_kept(MaskedRows rows, std::int64_t heads, std::int64_t first_head, DropoutSite site, std::int64_t fours, T* kept) {
  const std::int64_t four = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (four >= fours) return;
  const std::int64_t per_head = rows.length * rows.length / 4;
  const std::int64_t in_head = four % per_head;
  const std::int64_t head = four / per_head % heads;
  const std::int64_t sample = four / per_head / heads;
  const std::int64_t i = in_head / (rows.length / 4);
  const std::int64_t j = in_head % (rows.length / 4) * 4;
  T values[4];
  if (rows.causal && j > i) {
#pragma unroll
    for (T& value : values) value = from_f32<T>(0.0f);
  } else {
    const auto block = static_cast<std::uint64_t>((first_head + head) * per_head + in_head);
    const base::RandomBlock words = dropout_words(dropout_key(site), static_cast<std::uint32_t>(site.samples[sample]), block);
#pragma unroll
    for (int n = 0; n < 4; ++n) values[n] = from_f32<T>(words[n] < site.threshold ? 0.0f : 1.0f);
  }
  uint2 raw;
  static_assert(sizeof values == sizeof raw);
  memcpy(&raw, values, sizeof raw);
  reinterpret_cast<uint2*>(kept)[four] = raw;
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

__global__ void __launch_bounds__(kThreads) blank_stats(MaskedRows rows, std::int64_t heads, const float* stats, float* blank) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows.batch * heads * rows.length) return;
  const std::int64_t row = at / (heads * rows.length) * rows.length + at % rows.length;
  blank[at] = rows.segments[row] < 0 ? kBlankStat : stats[at];
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

void launch_kept(const MaskedRows& rows, const ops::Attention& op, const Tensor& samples, const Tensor& scalars, base::DType dtype,
                 void* kept, cudaStream_t stream) {
  const DropoutSite site = dropout_site(op.rate, op.site, samples, scalars);
  const std::int64_t fours = rows.batch * op.heads.query * rows.length * rows.length / 4;
  const auto fill = [&](auto zero) {
    using T = decltype(zero);
    fill_kept<T>
        <<<blocks_for(fours, kThreads), kThreads, 0, stream>>>(rows, op.heads.query, op.first_head, site, fours, static_cast<T*>(kept));
  };
  if (dtype == base::DType::bf16) {
    fill(__nv_bfloat16{});
  } else {
    fill(__half{});
  }
  check_launch("attention: dropout");
}

void launch_blank_rows(const MaskedRows& rows, std::int64_t heads, const Tensor& out, float* stats, cudaStream_t stream) {
  with_element(out.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    blank_rows<T>
        <<<static_cast<unsigned>(rows.batch * rows.length), kThreads, 0, stream>>>(rows, heads, out.type.shape[-1], out.as<T>(), stats);
  });
  check_launch("attention: rows without a segment");
}

void launch_blank_stats(const MaskedRows& rows, std::int64_t heads, const float* stats, float* blank, cudaStream_t stream) {
  blank_stats<<<blocks_for(rows.batch * heads * rows.length, kThreads), kThreads, 0, stream>>>(rows, heads, stats, blank);
  check_launch("attention: rows without a segment");
}

}  // namespace plimsoll::kernels::cuda
