// The tiled attention kernels: values and gradients against the textbook in double, over the shapes and masks that tiles
// can get wrong; the same bits for every number of threads; a query that sees nothing; scratch that does not grow with T^2.
#include <gtest/gtest.h>

#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/table.h"
#include "kernels_attention/naive_attention.h"
#include "ops/masks/rules.h"
#include "ops/step_scalars.h"

namespace plimsoll::test {
namespace {

using base::DType;
using base::Shape;
using base::TensorType;
using kernels::cpu::Tensor;

// A tensor on the heap, to the byte, so that the address sanitizer sees a step beyond it.
struct Owned {
  std::unique_ptr<std::byte[]> memory;
  Tensor tensor;

  explicit Owned(TensorType type) : memory(new std::byte[static_cast<std::size_t>(type.bytes())]) {
    std::memset(memory.get(), 0xFF, static_cast<std::size_t>(type.bytes()));
    tensor = {memory.get(), type};
  }
};

void fill_random(const Tensor& tensor, std::uint64_t seed, double spread) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.0, spread);
  kernels::cpu::with_element(tensor.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < tensor.type.shape.elements(); ++i) {
      tensor.as<T>()[i] = kernels::cpu::from_f32<T>(static_cast<float>(normal(random)));
    }
  });
}

std::vector<double> widened(const Tensor& tensor) {
  std::vector<double> result;
  kernels::cpu::with_element(tensor.type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < tensor.type.shape.elements(); ++i) result.push_back(kernels::cpu::to_f32(tensor.as<T>()[i]));
  });
  return result;
}

double max_abs(const std::vector<double>& values) {
  double max = 0.0;
  for (double value : values) max = std::max(max, std::abs(value));
  return max;
}

void run_kernel(const kernels::cpu::Kernel& kernel, const ops::Op& op, const std::vector<Tensor>& inputs,
                const std::vector<Tensor>& outputs, int threads) {
  std::vector<TensorType> input_types, output_types;
  for (const Tensor& tensor : inputs) input_types.push_back(tensor.type);
  for (const Tensor& tensor : outputs) output_types.push_back(tensor.type);
  ASSERT_FALSE(kernel.refusal({op, input_types, output_types, threads}));
  const auto bytes = static_cast<std::size_t>(kernel.workspace({op, input_types, output_types, threads}));
  auto* workspace = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  std::memset(workspace, 0xFF, bytes);  // NaN: whatever is read before it is written shows
  kernel.run({op, inputs, outputs, workspace, threads});
  std::free(workspace);
}

// The operands of one case, computed with a number of threads.
class Computed {
 public:
  Computed(const AttentionCase& work, DType dtype, int threads, double spread = 1.0)
      : heads_(work.attention.heads),
        packed({dtype, Shape{work.batch, work.length, heads_.packed_width()}}),
        out({dtype, Shape{work.batch, work.length, heads_.query * heads_.dim}}),
        lse({DType::f32, Shape{work.batch, heads_.query, work.length}}),
        dout(out.tensor.type),
        dpacked(packed.tensor.type) {
    fill_random(packed.tensor, work.seed, spread);
    fill_random(dout.tensor, work.seed + 1, 1.0);
    run(work, threads);
  }

  void run(const AttentionCase& work, int threads) {
    std::vector<Tensor> masks;
    std::vector<std::int32_t> segments = work.segments, samples = work.samples;
    ops::StepScalars scalars;
    scalars.seed = work.seed;
    scalars.step = work.step;
    if (work.attention.segmented) masks.push_back({segments.data(), {DType::i32, Shape{work.batch, work.length}}});
    if (work.attention.rate > 0.0) {
      masks.push_back({samples.data(), {DType::i32, Shape{work.batch}}});
      masks.push_back({&scalars, ops::step_scalars_type()});
    }
    std::vector<Tensor> inputs{packed.tensor};
    inputs.insert(inputs.end(), masks.begin(), masks.end());
    run_kernel(kernels::cpu::attention_kernels()[0], work.attention, inputs, {out.tensor, lse.tensor}, threads);
    inputs = {dout.tensor, packed.tensor, out.tensor, lse.tensor};
    inputs.insert(inputs.end(), masks.begin(), masks.end());
    run_kernel(kernels::cpu::attention_kernels()[1], ops::AttentionGrad{work.attention}, inputs, {dpacked.tensor}, threads);
  }

 private:
  ops::Heads heads_;

 public:
  Owned packed, out, lse, dout, dpacked;
};

std::string describe(const AttentionCase& work) {
  return fmt::format("{} B={} T={} seed={}", ops::to_string(work.attention), work.batch, work.length, work.seed);
}

std::vector<std::int32_t> random_segments(std::mt19937_64& random, std::int64_t batch, std::int64_t length) {
  std::vector<std::int32_t> ids;
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    std::int32_t id = 0;
    const std::uint64_t mean = 1 + random() % 90;
    const bool padded = random() % 2 == 0;
    for (std::int64_t i = 0; i < length; ++i) {
      if (random() % mean == 0) id = padded && random() % 3 == 0 ? -1 : std::abs(id) + 1;
      ids.push_back(id);
    }
  }
  return ids;
}

AttentionCase random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed * 7919);
  const auto pick = [&](std::initializer_list<std::int64_t> from) { return *(from.begin() + random() % from.size()); };
  AttentionCase work;
  work.seed = seed;
  work.batch = pick({1, 1, 2, 3});
  work.length = pick({1, 2, 7, 16, 31, 64, 65, 100, 128, 131, 193});
  const std::int64_t groups = pick({1, 2, 3});
  work.attention.heads = {groups * pick({1, 1, 2, 3}), groups, pick({1, 3, 8, 16, 20, 32, 48, 64, 64, 80, 96, 128, 129})};
  work.attention.causal = random() % 3 != 0;
  work.attention.window = random() % 3 == 0 ? pick({1, 5, 40, 64, 100, 1000}) : 0;
  work.attention.segmented = random() % 3 == 0;
  work.attention.rate = random() % 3 == 0 ? 0.2 : 0.0;
  work.attention.site = random();
  work.step = static_cast<std::uint32_t>(random());
  for (std::int64_t sample = 0; sample < work.batch; ++sample) work.samples.push_back(static_cast<std::int32_t>(random()));
  if (work.attention.segmented) work.segments = random_segments(random, work.batch, work.length);
  if (random() % 3 == 0) work.attention.pattern = {ops::find_mask_rule("strided"), {pick({0, 1, 17, 64}), pick({2, 5, 63, 150})}};
  return work;
}

// |got - want| <= rounding * |want| + 2e-6 * largest for every element.
void expect_close(const std::vector<double>& got, const std::vector<double>& want, double rounding, const std::string& what) {
  const double slack = 2e-6 * max_abs(want);
  double worst = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double excess = std::abs(got[i] - want[i]) - rounding * std::abs(want[i]);
    worst = std::isnan(got[i]) ? std::numeric_limits<double>::infinity() : std::max(worst, excess);
  }
  EXPECT_LE(worst, slack) << what << ": " << worst / max_abs(want) << " of the largest";
}

void expect_lse(const std::vector<double>& got, const std::vector<double>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "lse " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], 1e-6 * (1.0 + std::abs(want[i]))) << "lse " << i;
    }
  }
}

double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-10;
    default: return 0.0;
  }
}

void check(const AttentionCase& work, DType dtype, int threads) {
  SCOPED_TRACE(describe(work) + fmt::format(" {} threads={}", base::name_of(dtype), threads));
  const Computed computed(work, dtype, threads);
  const std::vector<double> packed = widened(computed.packed.tensor);
  const NaiveForward forward = naive_attention(work, packed);
  expect_close(widened(computed.out.tensor), forward.out, rounding_of(dtype), "out");
  expect_lse(widened(computed.lse.tensor), forward.lse);
  // In f32 the gradient is that of the exact output; narrower ones are the gradient for the output as it was rounded.
  const std::vector<double> out = dtype == DType::f32 ? forward.out : widened(computed.out.tensor);
  const std::vector<double> dpacked = naive_attention_grad(work, widened(computed.dout.tensor), packed, out);
  expect_close(widened(computed.dpacked.tensor), dpacked, rounding_of(dtype), "dpacked");
}

TEST(Attention, MatchesTheTextbook) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) check(random_case(seed), DType::f32, 1 + static_cast<int>(seed % 3));
}

TEST(Attention, MatchesTheTextbookInNarrowTypes) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) check(random_case(seed), seed % 2 == 0 ? DType::bf16 : DType::f16, 2);
}

// Every width of vector that was compiled and that this machine runs.
TEST(Attention, MatchesTheTextbookOnEveryInstructionSet) {
  for (std::int64_t target = 1; target > 0; target <<= 1) {
    if ((hwy::SupportedTargets() & target) == 0 && target != HWY_SCALAR) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    for (std::uint64_t seed = 200; seed < 206; ++seed) check(random_case(seed), seed % 3 == 0 ? DType::bf16 : DType::f32, 2);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
}

bool same_bits(const Owned& a, const Owned& b) {
  return std::memcmp(a.tensor.data, b.tensor.data, static_cast<std::size_t>(a.tensor.type.bytes())) == 0;
}

TEST(Attention, ThreadsDoNotChangeABit) {
  for (std::uint64_t seed = 300; seed < 312; ++seed) {
    const AttentionCase work = random_case(seed);
    SCOPED_TRACE(describe(work));
    const Computed once(work, DType::f32, 1);
    // One and few threads take whole heads, many split them; 1 again is a plain repeat.
    for (int threads : {1, 2, 3, 7, 16}) {
      const Computed again(work, DType::f32, threads);
      EXPECT_TRUE(same_bits(once.out, again.out)) << threads;
      EXPECT_TRUE(same_bits(once.lse, again.lse)) << threads;
      EXPECT_TRUE(same_bits(once.dpacked, again.dpacked)) << threads;
    }
  }
}

TEST(Attention, LongSequence) {
  AttentionCase work;
  work.length = 515;
  work.attention.heads = {2, 1, 64};
  check(work, DType::f32, 2);
  work.attention.window = 130;
  check(work, DType::f32, 2);
}

// Large scores: the running maximum moves and most probabilities vanish.
TEST(Attention, LargeScores) {
  AttentionCase work;
  work.length = 200;
  work.attention.heads = {1, 1, 64};
  work.attention.causal = false;
  const Computed computed(work, DType::f32, 1, 6.0);
  const std::vector<double> packed = widened(computed.packed.tensor);
  const NaiveForward forward = naive_attention(work, packed);
  double worst = 0.0;
  const std::vector<double> out = widened(computed.out.tensor);
  for (std::size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::abs(out[i] - forward.out[i]));
  EXPECT_LE(worst, 1e-4 * max_abs(forward.out));  // scores of some 100 carry errors of 1e-5
}

TEST(Attention, QueriesThatSeeNothing) {
  AttentionCase work;
  work.batch = 2;
  work.length = 150;
  work.attention.heads = {2, 1, 16};
  work.attention.segmented = true;
  work.segments.assign(300, -1);
  for (int i = 150; i < 250; ++i) work.segments[i] = 3;  // the first sample is all padding, the second ends in it
  for (int threads : {1, 8}) {
    const Computed computed(work, DType::f32, threads);
    const std::vector<double> out = widened(computed.out.tensor);
    const std::vector<double> lse = widened(computed.lse.tensor);
    const std::vector<double> dpacked = widened(computed.dpacked.tensor);
    const std::size_t width = 32, packed_width = 64;
    for (std::size_t position = 0; position < 300; ++position) {
      if (position >= 150 && position < 250) continue;
      for (std::size_t c = 0; c < width; ++c) EXPECT_EQ(out[position * width + c], 0.0);
      for (std::size_t c = 0; c < packed_width; ++c) EXPECT_EQ(dpacked[position * packed_width + c], 0.0);
    }
    for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(lse[i], -std::numeric_limits<double>::infinity());
  }
  check(work, DType::f32, 2);
}

// Loss scaling looks for overflow in gradients: it must not vanish on the way.
TEST(Attention, NonFiniteNumbersReachTheGradient) {
  AttentionCase work;
  work.length = 70;
  work.attention.heads = {1, 1, 16};
  for (float poison : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Computed computed(work, DType::f32, 1);
    computed.packed.tensor.as<float>()[3] = poison;  // of query 0
    computed.run(work, 1);
    EXPECT_FALSE(std::isfinite(computed.dpacked.tensor.as<float>()[16 + 3]));  // key 0
    EXPECT_TRUE(std::isfinite(computed.out.tensor.as<float>()[69 * 16]));

    fill_random(computed.packed.tensor, 1, 1.0);
    computed.dout.tensor.as<float>()[40 * 16] = poison;
    computed.run(work, 1);
    EXPECT_FALSE(std::isfinite(computed.dpacked.tensor.as<float>()[40 * 48]));
    EXPECT_FALSE(std::isfinite(computed.dpacked.tensor.as<float>()[32]));           // value of position 0
    EXPECT_TRUE(std::isfinite(computed.dpacked.tensor.as<float>()[69 * 48 + 32]));  // which query 40 does not see
  }
}

std::int64_t workspace_of(std::size_t kernel, const ops::Op& op, std::int64_t length, int threads) {
  const TensorType packed{DType::f32, Shape{2, length, 12 * 16}};
  const TensorType out{DType::f32, Shape{2, length, 4 * 16}};
  const TensorType lse{DType::f32, Shape{2, 4, length}};
  const std::vector<TensorType> forward_inputs{packed}, forward_outputs{out, lse}, inputs{out, packed, out, lse}, outputs{packed};
  const kernels::cpu::Kernel& row = kernels::cpu::attention_kernels()[kernel];
  return kernel == 0 ? row.workspace({op, forward_inputs, forward_outputs, threads}) : row.workspace({op, inputs, outputs, threads});
}

TEST(Attention, ScratchDoesNotGrowWithTheSquare) {
  const ops::Attention attention{.heads = {4, 4, 16}};
  EXPECT_EQ(workspace_of(0, attention, 64, 2), workspace_of(0, attention, 65536, 2));
  EXPECT_EQ(workspace_of(0, attention, 64, 4), 2 * workspace_of(0, attention, 64, 2));
  // Whole heads of K, V, dK, dV; or, with more threads than heads, tiles alone.
  const std::int64_t grown =
      workspace_of(1, ops::AttentionGrad{attention}, 65536, 2) - workspace_of(1, ops::AttentionGrad{attention}, 4096, 2);
  EXPECT_EQ(grown, 2 * 4 * (65536 - 4096) * 16 * 4);
  EXPECT_EQ(workspace_of(1, ops::AttentionGrad{attention}, 65536, 32), workspace_of(1, ops::AttentionGrad{attention}, 4096, 32));
}

TEST(Attention, RefusesOtherElementTypes) {
  const ops::Op op = ops::Attention{.heads = {1, 1, 16}};
  const std::vector<TensorType> inputs{{DType::f8e4m3, Shape{1, 4, 48}}};
  const std::vector<TensorType> outputs{{DType::f8e4m3, Shape{1, 4, 16}}, {DType::f32, Shape{1, 1, 4}}};
  const auto refusal = kernels::cpu::attention_kernels()[0].refusal({op, inputs, outputs, 1});
  ASSERT_TRUE(refusal);
  EXPECT_NE(refusal->find("f8e4m3"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::test
