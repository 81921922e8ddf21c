// Rotary positions: query and key heads of packed rows turned by the angle of their position, values passed through.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/workspace.h"
#include "ops/op.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

// One head: pairs (d, d + half) turned by the angle whose cosines and sines are given; sign -1 turns back. y may be x.
HWY_INLINE void rotate_head(const float* x, float* y, const float* cosines, const float* sines, float sign, std::int64_t half) {
  const Tag d;
  const Vector signs = hn::Set(d, sign);
  std::int64_t index = 0;
  for (; index + kLanes <= half; index += kLanes) {
    const Vector c = load(d, cosines + index);
    const Vector s = hn::Mul(signs, load(d, sines + index));
    const Vector a = load(d, x + index);
    const Vector b = load(d, x + half + index);
    store(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), y + index);
    store(d, hn::MulAdd(a, s, hn::Mul(b, c)), y + half + index);
  }
  const auto rest = static_cast<std::size_t>(half - index);
  if (rest == 0) return;
  const Vector c = load_n(d, cosines + index, rest);
  const Vector s = hn::Mul(signs, load_n(d, sines + index, rest));
  const Vector a = load_n(d, x + index, rest);
  const Vector b = load_n(d, x + half + index, rest);
  store_n(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), y + index, rest);
  store_n(d, hn::MulAdd(a, s, hn::Mul(b, c)), y + half + index, rest);
}

// One packed row; `angles` is the position's row of the table.
void rotate_row(const ops::Heads& heads, const float* x, float* y, const float* angles, float sign) {
  const std::int64_t half = heads.dim / 2;
  // Within a group the queries and the key lie side by side and turn alike.
  const std::int64_t turned = heads.per_group() + 1;
  for (std::int64_t group = 0; group < heads.kv; ++group) {
    const std::int64_t first = heads.query_offset(group * heads.per_group());
    for (std::int64_t head = 0; head < turned; ++head) {
      const std::int64_t offset = first + head * heads.dim;
      rotate_head(x + offset, y + offset, angles, angles + half, sign, half);
    }
    const std::int64_t value = heads.value_offset(group);
    if (x != y) std::memcpy(y + value, x + value, static_cast<std::size_t>(heads.dim) * sizeof(float));
  }
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(rotate_row);

namespace {

std::int64_t rope_workspace(const ops::KernelQuery& query) {
  Workspace workspace;
  workspace.take<float>(query.threads * std::get<ops::Rope>(query.op).heads.packed_width());
  return workspace.bytes();
}

void run_rope(const Call& call) {
  const auto& op = std::get<ops::Rope>(call.op);
  const Tensor& x = call.inputs[0];
  const Tensor& y = call.outputs[0];
  const auto* positions = call.inputs[1].as<const std::int32_t>();
  const Tensor& table = call.inputs[2];
  const std::int64_t context = table.type.shape[0];
  const std::int64_t width = op.heads.packed_width();
  const float sign = op.inverse ? -1.0f : 1.0f;
  const std::int64_t grain = std::max<std::int64_t>(1, 8192 / width);
  parallel_ranges(call.threads, x.type.shape.rows(), grain, [&](std::int64_t begin, std::int64_t end, int thread) {
    float* buffer = reinterpret_cast<float*>(call.workspace) + thread * width;
    for (std::int64_t row = begin; row < end; ++row) {
      PLIMSOLL_CHECK(positions[row] >= 0 && positions[row] < context, "[rope] position {} of a table of {}", positions[row], context);
      const float* src = read_f32(x, row * width, width, buffer);
      float* dst = target_f32(y, row * width, buffer);
      HWY_DYNAMIC_DISPATCH(rotate_row)(op.heads, src, dst, table.as<const float>() + positions[row] * op.heads.dim, sign);
      finish_f32(y, row * width, width, dst);
    }
  });
}

constexpr std::array kKernels{
    Kernel{.op = "rope", .name = "rope.simd", .refusal = refuse_other_floats, .workspace = rope_workspace, .run = run_rope},
};

}  // namespace

std::span<const Kernel> rope_kernels() { return kKernels; }

}  // namespace plimsoll::kernels::cpu
#endif
