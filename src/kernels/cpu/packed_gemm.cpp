#include "kernels/cpu/packed_gemm.h"

#include <omp.h>

#include <algorithm>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/packed_gemm.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/gemm_blocking.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {
namespace {

using base::DType;

class Multiplication {
 public:
  Multiplication(const PackedGemm& gemm, std::byte* workspace, int threads)
      : gemm_(gemm), layout_({gemm.m, gemm.n, gemm.k, gemm.c_dtype}, threads), passes_(gemm.k) {
    group_ = reinterpret_cast<float*>(workspace + layout_.group);
    block_ = reinterpret_cast<float*>(workspace + layout_.block);
    sums_ = reinterpret_cast<float*>(workspace + layout_.sums);
    if (gemm.bias) bias_ = widened_bias(reinterpret_cast<float*>(workspace + layout_.bias));
    with_element(gemm.c_dtype, [&](auto zero) {
      with_activation(gemm.activation, [&](auto kind) { finish_last_ = finish_tile<decltype(zero), kind.value>; });
    });
  }

  // Every thread of the team runs this.
  void run(std::int64_t thread, std::int64_t threads) const {
    for (Step at; at.pass < passes_.count; at = after(at)) {
      const Range rows = rows_of(block_slivers(at.block));
      pack_operand<kTileRows, false>(gemm_.a, gemm_.a.transposed, rows, depth_of(at), share(at, thread, threads), block_);
#pragma omp barrier
      compute(at, thread, threads);
#pragma omp barrier
    }
  }

 private:
  struct Step {
    std::int64_t pass = 0;
    std::int64_t block = 0;
  };

  Step after(Step at) const { return at.block + 1 < blocks() ? Step{at.pass, at.block + 1} : Step{at.pass + 1, 0}; }
  Range depth_of(Step at) const { return part_of(gemm_.k, at.pass, passes_.count); }
  std::int64_t row_slivers() const { return divide_up(gemm_.m, kTileRows); }
  std::int64_t blocks() const { return divide_up(row_slivers(), kBlockRows / kTileRows); }
  Range block_slivers(std::int64_t block) const { return part_of(row_slivers(), block, blocks()); }
  Range rows_of(Range slivers) const { return {slivers.begin * kTileRows, std::min(gemm_.m, slivers.end * kTileRows)}; }
  Range columns_of(Range slivers) const { return {slivers.begin * kTileColumns, std::min(gemm_.n, slivers.end * kTileColumns)}; }
  // The slivers of A that a thread packs, counted from the beginning of the block.
  Range share(Step at, std::int64_t thread, std::int64_t threads) const {
    const Range slivers = block_slivers(at.block);
    return part_of(slivers.end - slivers.begin, thread, threads);
  }

  const float* widened_bias(float* space) const {
    if (gemm_.bias_dtype == DType::f32) return static_cast<const float*>(gemm_.bias);
    with_element(gemm_.bias_dtype, [&](auto zero) {
      const auto* bias = static_cast<const decltype(zero)*>(gemm_.bias);
      for (std::int64_t j = 0; j < gemm_.n; ++j) space[j] = to_f32(bias[j]);
    });
    return space;
  }

  // Slivers over `lines` (rows of A, columns of B), counted from its beginning.
  template <std::int64_t kWidth, bool kPad>
  static void pack_operand(const MatrixView& from, bool lines_adjacent, Range lines, Range depth, Range slivers, float* dst) {
    const std::int64_t line_stride = lines_adjacent ? 1 : from.stride;
    const std::int64_t depth_stride = lines_adjacent ? from.stride : 1;
    with_element(from.dtype, [&](auto zero) {
      using T = decltype(zero);
      const T* const src = static_cast<const T*>(from.data) + lines.begin * line_stride + depth.begin * depth_stride;
      pack<kWidth, kPad>(Lines<T>{src, line_stride, depth_stride, lines.end - lines.begin, depth.end - depth.begin}, slivers, dst);
    });
  }

  // The tiles of this thread, a group of columns after the other.
  void compute(Step at, std::int64_t thread, std::int64_t threads) const {
    const Range block = block_slivers(at.block);
    const std::int64_t column_slivers = divide_up(gemm_.n, kTileColumns);
    const ThreadGrid grid(block.end - block.begin, column_slivers, threads);
    if (thread >= grid.rows * grid.columns) return;
    const Range my_rows = part_of(block.end - block.begin, thread / grid.columns, grid.rows);
    const Range my_columns = part_of(column_slivers, thread % grid.columns, grid.columns);
    const std::int64_t groups = divide_up(my_columns.end - my_columns.begin, kGroupSlivers);
    const std::int64_t rows_count = my_rows.end - my_rows.begin;
    float* const group = group_ + thread * layout_.group_floats;
    const Step next = after(at);
    Fetch fetch;
    if (next.pass < passes_.count) {
      const Range slivers = share(next, thread, threads);
      const std::int64_t first = block_slivers(next.block).begin;
      fetch.a = Ahead(gemm_.a, rows_of({first + slivers.begin, first + slivers.end}), depth_of(next),
                      rows_count * (my_columns.end - my_columns.begin));
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const Range slivers = part_in(my_columns, g, groups);
      const std::int64_t tiles = rows_count * (slivers.end - slivers.begin);
      pack_operand<kTileColumns, true>(gemm_.b, !gemm_.b.transposed, columns_of(slivers), depth_of(at), {0, slivers.end - slivers.begin},
                                       group);
      if (g + 1 < groups) {
        fetch.b = Ahead(gemm_.b, depth_of(at), columns_of(part_in(my_columns, g + 1, groups)), tiles);
      } else if (next.pass != at.pass && next.pass < passes_.count) {
        fetch.b = Ahead(gemm_.b, depth_of(next), columns_of(part_in(my_columns, 0, groups)), tiles);
      } else {
        fetch.b = Ahead();
      }
      compute_group(at, my_rows, columns_of(slivers), group, fetch);
    }
  }

  void compute_group(Step at, Range slivers, Range columns, const float* group, Fetch& fetch) const {
    const std::int64_t depth = depth_of(at).end - depth_of(at).begin;
    const Range rows = rows_of(block_slivers(at.block));
    const std::int64_t pass = at.pass;
    const bool last = pass + 1 == passes_.count;
    const Finish finish = finish_for(pass, last);
    const FinishTile finish_function = last ? finish_last_ : finish_tile<float, ops::ActivationKind::none>;
    const DType out_dtype = last ? gemm_.c_dtype : DType::f32;
    const std::int64_t out_size = base::size_of(out_dtype);
    const bool direct = out_dtype == DType::f32 && !finish.bias && !finish.activated;
    HWY_ALIGN float tile[kTileRows * kTileColumns];
    for (std::int64_t r = slivers.begin; r < slivers.end; ++r) {
      const std::int64_t row = rows.begin + r * kTileRows;
      const std::int64_t height = std::min<std::int64_t>(kTileRows, rows.end - row);
      for (std::int64_t column = columns.begin; column < columns.end; column += kTileColumns) {
        const std::int64_t width = std::min(kTileColumns, columns.end - column);
        char* const out = static_cast<char*>(finish.out) + (row * finish.out_stride + column) * out_size;
        fetch.begin_tile(out, finish.out_stride * out_size, height, width * out_size);
        const bool whole = direct && width == kTileColumns;
        const TileTarget to{tile, whole ? reinterpret_cast<float*>(out) : nullptr, finish.out_stride, finish.add_out};
        kComputeTile[height - 1](depth, block_ + r * kTileRows * depth, group + (column - columns.begin) * depth, to, fetch);
        if (!whole) finish_function(finish, tile, row, height, column, width);
      }
    }
  }

  // f32 results keep the sums between passes themselves; others have room for them in the workspace.
  Finish finish_for(std::int64_t pass, bool last) const {
    Finish to;
    const bool sums_in_c = gemm_.c_dtype == DType::f32;
    if (sums_in_c || last) {
      to.out = gemm_.c;
      to.out_stride = gemm_.c_stride;
      to.add_out = gemm_.accumulate || (sums_in_c && pass > 0);
    } else {
      to.out = sums_;
      to.out_stride = gemm_.n;
      to.add_out = pass > 0;
    }
    if (last && !sums_in_c && pass > 0) {
      to.sums = sums_;
      to.sums_stride = gemm_.n;
    }
    if (last) {
      to.bias = bias_;
      to.activated = gemm_.activated;
    }
    return to;
  }

  const PackedGemm& gemm_;
  WorkspaceLayout layout_;
  Passes passes_;
  float* group_ = nullptr;
  float* block_ = nullptr;
  float* sums_ = nullptr;
  const float* bias_ = nullptr;
  FinishTile finish_last_ = nullptr;
};

}  // namespace

void multiply(const PackedGemm& gemm, std::byte* workspace, int threads) {
  const Multiplication multiplication(gemm, workspace, threads);
#pragma omp parallel num_threads(threads)
  multiplication.run(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(multiply);

std::int64_t packed_gemm_workspace(const GemmSize& size, int threads) { return WorkspaceLayout(size, threads).bytes; }

void packed_gemm(const PackedGemm& gemm, std::byte* workspace, int threads) {
  if (gemm.m == 0 || gemm.n == 0) return;
  HWY_DYNAMIC_DISPATCH(multiply)(gemm, workspace, threads);
}

}  // namespace plimsoll::kernels::cpu
#endif
