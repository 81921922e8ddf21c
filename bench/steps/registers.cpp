#include "steps/registers.h"

#include <omp.h>

#include <cstdint>

#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "steps/registers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace plimsoll::bench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// More sums than any processor's units need to be always busy (latency times units), and registers for all of them everywhere.
constexpr int kSums = 12;

float multiply(std::int64_t rounds) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5f);
  const auto addend = hn::Set(d, 1.0f);
  hn::Vec<decltype(d)> sums[kSums];
#pragma GCC unroll 12
  for (auto& sum : sums) sum = addend;
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (auto& sum : sums) sum = hn::MulAdd(sum, factor, addend);
  }
  float total = 0.0f;
  for (const auto& sum : sums) total += hn::GetLane(sum);
  return total;
}

}  // namespace

float multiply_on_threads(double flops, int threads) {
  const double flops_a_round = 2.0 * kSums * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
  const auto rounds = static_cast<std::int64_t>(flops / flops_a_round / threads);
  float total = 0.0f;
#pragma omp parallel num_threads(threads) reduction(+ : total)
  total += multiply(rounds);
  return total;
}

}  // namespace plimsoll::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plimsoll::bench {

HWY_EXPORT(multiply_on_threads);

float multiply_in_registers(double flops, int threads) { return HWY_DYNAMIC_DISPATCH(multiply_on_threads)(flops, threads); }

}  // namespace plimsoll::bench
#endif
