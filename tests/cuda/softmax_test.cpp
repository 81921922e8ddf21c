// Losses and gradients between the products of a head, on rows of every length that is handled in its own way: in one block's shared
// memory, in that of two, four and eight, and read twice; logits in f32 and in bf16. Against a softmax in double of the same logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "cuda/device_case.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/head_softmax.h"

namespace plimsoll::op_cases {
namespace {

namespace cuda = kernels::cuda;

constexpr std::int32_t kElsewhere = 0x7FFFFFFF;
constexpr float kScale = 0.25f;  // of gradients

struct Rows {
  std::int64_t vocabulary;
  std::int64_t stride;
  std::vector<std::int32_t> targets;
  std::vector<float> logits;

  base::DType dtype;  // of the logits

  Rows(std::int64_t columns, base::DType of) : vocabulary(columns), stride((columns + 63) / 64 * 64), dtype(of) {
    const auto at = [&](double share) { return static_cast<std::int32_t>(share * static_cast<double>(columns - 1)); };
    targets = {0, at(0.3), at(0.51), at(0.8), at(1.0), -1, kElsewhere};
    const base::RandomKey key = base::random_key(3, base::hash_name("logits"));
    logits.assign(static_cast<std::size_t>(stride) * targets.size(), std::nanf(""));  // what lies behind the vocabulary is never used
    for (std::size_t row = 0; row < targets.size(); ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto place = static_cast<std::uint32_t>(column);
        const float drawn = 24.0f * base::uniform_from_bits(base::philox({place, static_cast<std::uint32_t>(row), 0, 0}, key)[0]);
        logits[place_of(row, column)] = dtype == base::DType::f32 ? drawn : base::f32_from_bf16(base::bf16_from_f32(drawn));
      }
    }
  }
  std::vector<std::uint16_t> narrow_logits() const {
    std::vector<std::uint16_t> narrow(logits.size());
    std::ranges::transform(logits, narrow.begin(), [](float logit) { return base::bf16_from_f32(logit); });
    return narrow;
  }
  std::size_t place_of(std::size_t row, std::int64_t column) const {
    return row * static_cast<std::size_t>(stride) + static_cast<std::size_t>(column);
  }
};

struct Results {
  std::vector<float> losses;
  std::vector<float> gradients;  // as the logits lie
};

Results run(const Rows& rows, base::DType dtype) {
  const std::size_t count = rows.targets.size();
  const DeviceMemory memory(static_cast<std::int64_t>(rows.logits.size() * sizeof(float)) + 4096);
  std::byte* logits = memory.data() + 4096;
  std::byte* losses = memory.data() + 1024;
  std::byte* scalars = memory.data() + 2048;
  const auto up = [](std::byte* to, const auto& from) {
    const std::span bytes = std::as_bytes(std::span(from));
    cuda::check(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "upload");
  };
  ops::StepScalars step[1];
  step[0].loss_scale = 2.0f * kScale;
  step[0].inverse_tokens = 0.5f;
  up(memory.data(), rows.targets);
  up(scalars, step);
  const bool narrow_logits = rows.dtype == base::DType::bf16;
  if (narrow_logits) {
    up(logits, rows.narrow_logits());
  } else {
    up(logits, rows.logits);
  }
  cuda::launch_softmax({.logits = logits,
                        .rows = static_cast<std::int64_t>(count),
                        .vocabulary = rows.vocabulary,
                        .stride = rows.stride,
                        .targets = reinterpret_cast<const std::int32_t*>(memory.data()),
                        .losses = reinterpret_cast<float*>(losses),
                        .dtype = rows.dtype},
                       reinterpret_cast<const ops::StepScalars*>(scalars), dtype, nullptr);
  Results results{std::vector<float>(count), std::vector<float>(rows.logits.size())};
  cuda::check(cudaMemcpy(results.losses.data(), losses, count * sizeof(float), cudaMemcpyDeviceToHost), "download");
  cuda::check(cudaMemcpy(results.gradients.data(), logits, rows.logits.size() * sizeof(float), cudaMemcpyDeviceToHost), "download");
  if (dtype == base::DType::f32) return results;
  // 16-bit gradients of f32 logits lie in the front halves of their rows, those of bf16 logits as the logits did.
  const std::vector<float> bits = results.gradients;
  const std::size_t row_bytes = static_cast<std::size_t>(rows.stride) * (narrow_logits ? sizeof(std::uint16_t) : sizeof(float));
  for (std::size_t row = 0; row < count; ++row) {
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(rows.stride));
    std::memcpy(narrow.data(), reinterpret_cast<const std::byte*>(bits.data()) + row * row_bytes, narrow.size() * sizeof narrow[0]);
    std::ranges::transform(narrow, results.gradients.data() + rows.place_of(row, 0),
                           [](std::uint16_t each) { return base::f32_from_bf16(each); });
  }
  return results;
}

void check_row(const Rows& rows, std::size_t row, const Results& found, double bound) {
  const float* logits = rows.logits.data() + rows.place_of(row, 0);
  const float* gradients = found.gradients.data() + rows.place_of(row, 0);
  double sum = 0.0;
  for (std::int64_t column = 0; column < rows.vocabulary; ++column) sum += std::exp(static_cast<double>(logits[column]) - 24.0);
  const double lse = 24.0 + std::log(sum);
  const std::int32_t target = rows.targets[row];
  const bool here = target >= 0 && target != kElsewhere;
  EXPECT_NEAR(found.losses[row], target < 0 ? 0.0 : here ? lse - static_cast<double>(logits[target]) : lse, 1e-4);
  double worst = 0.0;
  for (std::int64_t column = 0; column < rows.stride; ++column) {
    const double probability = column < rows.vocabulary ? std::exp(static_cast<double>(logits[column]) - lse) : 0.0;
    const double one = here && column == target ? 1.0 : 0.0;
    const double expected = target < 0 ? 0.0 : kScale * (probability - one);
    const double off = std::abs(static_cast<double>(gradients[column]) - expected);
    const double of = target < 0 ? 0.0 : kScale * (probability + one);  // the difference may cancel
    worst = std::max(worst, std::isnan(off) ? INFINITY : off / (of + 1e-12));
  }
  EXPECT_LE(worst, bound) << "of a row of " << rows.vocabulary << ", target " << target;
}

TEST(HeadSoftmax, RowsOfEveryLength) {
  using base::DType;
  struct Types {
    DType logits, gradients;
    double bound;
  };
  for (const std::int64_t columns : {3, 100, 5003, 14080, 14081, 20000, 50257, 100000, 128256, 458752, 500001, 1000003}) {
    for (const auto& [of_logits, of_gradients, bound] :
         {Types{DType::f32, DType::f32, 2e-5}, Types{DType::f32, DType::bf16, 0.005}, Types{DType::bf16, DType::bf16, 0.005}}) {
      const Rows rows(columns, of_logits);
      const Results found = run(rows, of_gradients);
      for (std::size_t row = 0; row < rows.targets.size(); ++row) check_row(rows, row, found, bound);
      EXPECT_EQ(run(rows, of_gradients).losses, found.losses) << "a second run gives other bits";
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace plimsoll::op_cases
