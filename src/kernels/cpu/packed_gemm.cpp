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
    for (std::int64_t pass = 0; pass < passes_.count; ++pass) {
      const Range depth = part_of(gemm_.k, pass, passes_.count);
      const std::int64_t row_slivers = divide_up(gemm_.m, kTileRows);
      const std::int64_t blocks = divide_up(row_slivers, kBlockRows / kTileRows);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const Range slivers = part_of(row_slivers, block, blocks);
        const Range rows{slivers.begin * kTileRows, std::min(gemm_.m, slivers.end * kTileRows)};
        const Range mine = part_of(divide_up(rows.end - rows.begin, kTileRows), thread, threads);
        pack_operand<kTileRows, false>(gemm_.a, gemm_.a.transposed, rows, depth, mine, block_);
#pragma omp barrier
        compute(pass, rows, depth, thread, threads);
#pragma omp barrier
      }
    }
  }

 private:
  const float* widened_bias(float* space) const {
    if (gemm_.bias_dtype == base::DType::f32) return static_cast<const float*>(gemm_.bias);
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
  void compute(std::int64_t pass, Range rows, Range depth, std::int64_t thread, std::int64_t threads) const {
    const std::int64_t row_slivers = divide_up(rows.end - rows.begin, kTileRows);
    const std::int64_t column_slivers = divide_up(gemm_.n, kTileColumns);
    const ThreadGrid grid(row_slivers, column_slivers, threads);
    if (thread >= grid.rows * grid.columns) return;
    const Range my_rows = part_of(row_slivers, thread / grid.columns, grid.rows);
    const Range my_columns = part_of(column_slivers, thread % grid.columns, grid.columns);
    const std::int64_t groups = divide_up(my_columns.end - my_columns.begin, kGroupSlivers);
    float* const group = group_ + thread * layout_.group_bytes / static_cast<std::int64_t>(sizeof(float));
    Fetch fetch;
    for (std::int64_t g = 0; g < groups; ++g) {
      const Range slivers = part_in(my_columns, g, groups);
      const Range columns{slivers.begin * kTileColumns, std::min(gemm_.n, slivers.end * kTileColumns)};
      pack_operand<kTileColumns, true>(gemm_.b, !gemm_.b.transposed, columns, depth, {0, slivers.end - slivers.begin}, group);
      const Range next = g + 1 < groups ? part_in(my_columns, g + 1, groups) : Range{0, 0};
      fetch.expect_b(gemm_.b, depth, {next.begin * kTileColumns, std::min(gemm_.n, next.end * kTileColumns)},
                     (my_rows.end - my_rows.begin) * (slivers.end - slivers.begin));
      compute_group(pass, rows, my_rows, columns, depth.end - depth.begin, group, fetch);
    }
  }

  void compute_group(std::int64_t pass, Range rows, Range slivers, Range columns, std::int64_t depth, const float* group,
                     Fetch& fetch) const {
    const bool last = pass + 1 == passes_.count;
    const Finish finish = finish_for(pass, last);
    const FinishTile finish_function = last ? finish_last_ : finish_tile<float, ops::ActivationKind::none>;
    const std::int64_t out_size = last ? base::size_of(gemm_.c_dtype) : static_cast<std::int64_t>(sizeof(float));
    HWY_ALIGN float tile[kTileRows * kTileColumns];
    for (std::int64_t r = slivers.begin; r < slivers.end; ++r) {
      const std::int64_t row = rows.begin + r * kTileRows;
      const std::int64_t height = std::min<std::int64_t>(kTileRows, rows.end - row);
      for (std::int64_t column = columns.begin; column < columns.end; column += kTileColumns) {
        const std::int64_t width = std::min(kTileColumns, columns.end - column);
        fetch.expect_tile(static_cast<const char*>(finish.out) + (row * finish.out_stride + column) * out_size,
                          finish.out_stride * out_size, height, width * out_size);
        kComputeTile[height - 1](depth, block_ + r * kTileRows * depth, group + (column - columns.begin) * depth, tile, fetch);
        finish_function(finish, tile, row, height, column, width);
      }
    }
  }

  // f32 results keep the sums between passes themselves; others have room for them in the workspace.
  Finish finish_for(std::int64_t pass, bool last) const {
    Finish to;
    const bool sums_in_c = gemm_.c_dtype == base::DType::f32;
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
