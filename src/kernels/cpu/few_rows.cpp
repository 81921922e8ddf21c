#include "kernels/cpu/few_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/convert.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd_targets.h"
#include "kernels/cpu/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd_math.h"

#ifndef PLIMSOLL_KERNELS_CPU_FEW_ROWS_ONCE
#define PLIMSOLL_KERNELS_CPU_FEW_ROWS_ONCE
namespace plimsoll::kernels::cpu {

// f32 copies: x whole, and the products before bias and activation.
struct FewRowsScratch {
  FewRowsScratch(Workspace& workspace, std::int64_t m, std::int64_t n, std::int64_t k)
      : x(workspace.take<float>(m * k)), products(workspace.take<float>(m * n)), bias(workspace.take<float>(n)) {}

  float* x;         // (m, k)
  float* products;  // (m, n)
  float* bias;      // (n)
};

}  // namespace plimsoll::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace plimsoll::kernels::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(F32()));

struct Products {
  const float* x;  // (rows, k)
  std::int64_t k;
  std::int64_t n;
  float* out;  // (rows, n)
};

// kColumns columns of the result from as many rows of the weight.
template <typename T, int kRows, int kColumns>
void multiply_columns(const Products& with, const T* w, std::int64_t column) {
  const F32 d;
  const T* const from = w + column * with.k;
  F32Vec sums[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::Zero(d);
  }
  const auto add = [&](const F32Vec* weights, std::int64_t p, std::int64_t count) HWY_ATTR {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float* const x = with.x + r * with.k + p;
      const F32Vec left = count == kLanes ? load(d, x) : load_n(d, x, static_cast<std::size_t>(count));
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::MulAdd(left, weights[c], sums[r][c]);
    }
  };
  F32Vec weights[kColumns];
  std::int64_t p = 0;
  for (; p + kLanes <= with.k; p += kLanes) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) weights[c] = load(d, from + c * with.k + p);
    add(weights, p, kLanes);
  }
  if (p < with.k) {
    for (int c = 0; c < kColumns; ++c) weights[c] = load_n(d, from + c * with.k + p, static_cast<std::size_t>(with.k - p));
    add(weights, p, with.k - p);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) with.out[r * with.n + column + c] = hn::GetLane(hn::SumOfLanes(d, sums[r][c]));
  }
}

template <typename T, int kRows>
void multiply_range(const Products& with, const void* w, std::int64_t begin, std::int64_t end) {
  constexpr int kColumns = kRows <= 4 ? 4 : 2;
  const T* const weight = static_cast<const T*>(w);
  std::int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) multiply_columns<T, kRows, kColumns>(with, weight, column);
  for (; column < end; ++column) multiply_columns<T, kRows, 1>(with, weight, column);
}

using MultiplyRange = void (*)(const Products&, const void*, std::int64_t, std::int64_t);

template <typename T, int... kRowsLessOne>
MultiplyRange choose_rows(std::int64_t rows, std::integer_sequence<int, kRowsLessOne...>) {
  constexpr std::array<MultiplyRange, sizeof...(kRowsLessOne)> kFunctions{multiply_range<T, kRowsLessOne + 1>...};
  return kFunctions[static_cast<std::size_t>(rows - 1)];
}

template <typename T, ops::ActivationKind kind>
void finish_row(const float* products, const float* bias, T* out, T* activated, std::int64_t count) {
  const F32 d;
  for (std::int64_t j = 0; j < count; j += kLanes) {
    const auto some = static_cast<std::size_t>(std::min(kLanes, count - j));
    F32Vec value = load_n(d, products + j, some);
    if (bias) value = hn::Add(value, load_n(d, bias + j, some));
    store_n(d, value, out + j, some);
    if constexpr (kind != ops::ActivationKind::none) store_n(d, activation<kind>(d, load_n(d, out + j, some)), activated + j, some);
  }
}

}  // namespace

void multiply_few_rows(const PackedGemm& gemm, const FewRowsScratch& scratch, int threads) {
  const Products products{scratch.x, gemm.k, gemm.n, scratch.products};
  MultiplyRange multiply = nullptr;
  with_element(gemm.b.dtype, [&](auto zero) {
    multiply = choose_rows<decltype(zero)>(gemm.m, std::make_integer_sequence<int, static_cast<int>(kFewRows)>());
  });
  parallel_ranges(threads, gemm.n, 16, [&](std::int64_t begin, std::int64_t end, int) {
    multiply(products, gemm.b.data, begin, end);
    with_element(gemm.c_dtype, [&](auto zero) {
      using T = decltype(zero);
      with_activation(gemm.activation, [&](auto kind) {
        for (std::int64_t row = 0; row < gemm.m; ++row) {
          const std::int64_t at = row * gemm.c_stride + begin;
          T* const activated = gemm.activated ? static_cast<T*>(gemm.activated) + at : nullptr;
          finish_row<T, kind.value>(scratch.products + row * gemm.n + begin, gemm.bias ? scratch.bias + begin : nullptr,
                                    static_cast<T*>(gemm.c) + at, activated, end - begin);
        }
      });
    });
  });
}

}  // namespace plimsoll::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::kernels::cpu {

HWY_EXPORT(multiply_few_rows);

std::int64_t few_rows_workspace(const GemmSize& size) {
  Workspace workspace;
  const FewRowsScratch scratch(workspace, size.m, size.n, size.k);
  return workspace.bytes();
}

void few_rows_gemm(const PackedGemm& gemm, std::byte* memory, int threads) {
  Workspace workspace(memory);
  const FewRowsScratch scratch(workspace, gemm.m, gemm.n, gemm.k);
  widen(gemm.a.dtype, gemm.a.data, scratch.x, gemm.m * gemm.k);
  if (gemm.bias) widen(gemm.bias_dtype, gemm.bias, scratch.bias, gemm.n);
  HWY_DYNAMIC_DISPATCH(multiply_few_rows)(gemm, scratch, threads);
}

}  // namespace plimsoll::kernels::cpu
#endif
