// Leaner forms of optimizer state: the rules for one element, the kernels against them, and updates against updates in f32.
#include "kernels/cpu/state_forms.h"

#include <cstring>
#include <set>

#include "base/random.h"
#include "kernels_rows/harness.h"
#include "ops/forms/bf16.h"
#include "ops/forms/random_rounding.h"
#include "ops/forms/split.h"
#include "ops/step_rules.h"
#include "support/updates.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

using base::f32_from_bf16;

float float_at(std::uint32_t n) { return ops::float_of(base::philox({n, 0, 0, 0}, base::random_key(3, 5))[0]); }

ops::StepScalars scalars_of(std::uint64_t seed, std::int64_t updates) {
  ops::StepScalars scalars;
  scalars.seed = seed;
  scalars.updates = updates;
  return scalars;
}

// ---- one element

void expect_joins(std::uint32_t bits) {
  const float value = ops::float_of(bits);
  if (std::isnan(value)) return;
  const ops::SplitNumber number = ops::split_number(value);
  ASSERT_EQ(number.high, base::bf16_from_f32(value)) << bits;
  ASSERT_EQ(ops::bits_of(ops::joined(number)), bits) << bits;
}

TEST(SplitNumber, IsTheNumberToTheLastBit) {
  for (const std::uint32_t high : {0x0000u, 0x0001u, 0x3F7Fu, 0x3F80u, 0x7F7Fu, 0x7F80u, 0x8000u, 0xBF81u, 0xFF7Fu}) {
    for (std::uint32_t low = 0; low < 0x10000u; ++low) expect_joins(high << 16 | low);
  }
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) expect_joins(high << 16 | low);
  }
}

// Without the sign, two numbers would have the same halves.
TEST(SplitNumber, NeedsTheSignOnlyInTheMiddle) {
  const ops::SplitNumber even = ops::split_number(ops::float_of(0x3F808000u));
  const ops::SplitNumber odd = ops::split_number(ops::float_of(0x3F7F8000u));
  EXPECT_EQ(even.high, odd.high);
  EXPECT_EQ(even.low, odd.low);
  EXPECT_TRUE(even.down);
  EXPECT_FALSE(odd.down);
  EXPECT_FALSE(ops::split_number(ops::float_of(0x3F808001u)).down);
}

TEST(RoundingAtRandom, GoesToANeighbourAndKeepsWhatBf16Holds) {
  for (std::uint32_t n = 0; n < 100'000; ++n) {
    const float value = float_at(n);
    if (std::isnan(value) || std::isinf(value)) continue;
    const std::uint32_t down = ops::bits_of(value) >> 16;
    ASSERT_EQ(ops::bf16_at_random(value, 0), down);
    const std::uint32_t most = ops::bf16_at_random(value, 0xFFFFu);
    ASSERT_EQ(most, (ops::bits_of(value) & 0xFFFFu) == 0 ? down : down + 1);
  }
  for (const float special : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    EXPECT_EQ(f32_from_bf16(ops::bf16_at_random(special, 0xFFFFu)), special);
  for (const std::uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu})
    EXPECT_TRUE(std::isnan(f32_from_bf16(ops::bf16_at_random(ops::float_of(nan), 0xFFFFu))));
}

// All 2^16 random words: the mean is the number itself.
TEST(RoundingAtRandom, HasTheNumberAsItsMean) {
  for (std::uint32_t n = 0; n < 20; ++n) {
    const float value = ops::float_of((ops::bits_of(float_at(n)) & 0x807FFFFFu) | 0x3F000000u);
    double sum = 0.0;
    for (std::uint32_t random = 0; random < 0x10000u; ++random) sum += f32_from_bf16(ops::bf16_at_random(value, random));
    EXPECT_DOUBLE_EQ(sum / 0x10000, value);
  }
}

// Words for many elements and steps: uniform, and as good as independent of each other, of the step and of the element.
TEST(RoundingBits, AreUniformAndIndependent) {
  constexpr int kSamples = 1 << 18;
  constexpr double kSpread = 1.0 / 12.0;  // variance of what is uniform in [0, 1)
  double sums[3] = {}, squares[3] = {}, products[3] = {}, after[3] = {};
  double before[3] = {0.5, 0.5, 0.5};
  for (int n = 0; n < kSamples; ++n) {
    // A weight that stands still with a gradient that is often zero is the hardest case.
    const base::RandomKey key = ops::rounding_key(scalars_of(7, n / 16));
    const ops::RoundingBits bits = ops::rounding_bits(key, n % 4 == 0 ? 1e-3f : 0.0f, 1.0f + static_cast<float>(n % 16) / 128.0f, 0.0f);
    const double x[3] = {bits.weight / 65536.0, bits.first / 65536.0, bits.second / 65536.0};
    for (int i = 0; i < 3; ++i) {
      sums[i] += x[i];
      squares[i] += (x[i] - 0.5) * (x[i] - 0.5);
      products[i] += (x[i] - 0.5) * (x[(i + 1) % 3] - 0.5);
      after[i] += (x[i] - 0.5) * (before[i] - 0.5);
      before[i] = x[i];
    }
  }
  const double sigma = 5.0 / std::sqrt(static_cast<double>(kSamples));
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(sums[i] / kSamples, 0.5, sigma * std::sqrt(kSpread)) << i;
    EXPECT_NEAR(squares[i] / kSamples, kSpread, sigma * kSpread) << i;
    EXPECT_NEAR(products[i] / kSamples, 0.0, sigma * kSpread) << i;
    EXPECT_NEAR(after[i] / kSamples, 0.0, sigma * kSpread) << i;
  }
}

TEST(RoundingBits, DependOnSeedUpdateAndElementButNotOnTheSignOfZero) {
  const auto word = [](std::uint64_t seed, std::int64_t update, float g, float w, float m) {
    const ops::RoundingBits bits = ops::rounding_bits(ops::rounding_key(scalars_of(seed, update)), g, w, m);
    return bits.weight | bits.first << 16;
  };
  const std::set<std::uint32_t> all{word(1, 1, 1, 2, 3), word(2, 1, 1, 2, 3), word(1, 2, 1, 2, 3),
                                    word(1, 1, 9, 2, 3), word(1, 1, 1, 9, 3), word(1, 1, 1, 2, 9)};
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(word(1, 1, 0.0f, 1, 0.0f), word(1, 1, -0.0f, 1, -0.0f));
}

// ---- many elements

constexpr std::int64_t kCounts[] = {1, 3, 15, 16, 33, 1000};

TEST(StateForms, KernelsAreTheRulesOfOneElement) {
  const base::RandomKey key = ops::rounding_key(scalars_of(5, 11));
  for_each_target([&] {
    for (const std::int64_t count : kCounts) {
      const auto size = static_cast<std::size_t>(count);
      std::vector<float> g(size), w(size), m(size), v(size), joined(size), signs(size);
      std::vector<std::uint32_t> words(size);
      std::vector<std::uint16_t> high(size), low(size), narrow(size);
      for (std::size_t i = 0; i < size; ++i) {
        const auto n = static_cast<std::uint32_t>(4 * i);
        g[i] = float_at(n);
        w[i] = i % 3 == 0 ? ops::float_of((ops::bits_of(float_at(n + 1)) & 0xFFFF0000u) | 0x8000u) : float_at(n + 1);
        m[i] = i % 5 == 0 ? -0.0f : float_at(n + 2);
        v[i] = std::abs(float_at(n + 3));
      }
      draw_rounding(key, g.data(), w.data(), m.data(), words.data(), count);
      for (const RoundedState state : {RoundedState::weight, RoundedState::first, RoundedState::second}) {
        narrow_at_random(w.data(), words.data(), state, narrow.data(), count);
        for (std::size_t i = 0; i < size; ++i) {
          const ops::RoundingBits bits = ops::rounding_bits(key, g[i], w[i], m[i]);
          const std::uint32_t random = state == RoundedState::weight  ? bits.weight
                                       : state == RoundedState::first ? bits.first
                                                                      : bits.second;
          ASSERT_EQ(narrow[i], ops::bf16_at_random(w[i], random)) << i << " of " << count;
        }
      }
      signs = v;
      split_halves(w.data(), high.data(), low.data(), signs.data(), count);
      for (std::size_t i = 0; i < size; ++i) {
        const ops::SplitNumber number = ops::split_number(w[i]);
        ASSERT_EQ(high[i], number.high) << i;
        ASSERT_EQ(low[i], number.low) << i;
        ASSERT_EQ(std::signbit(signs[i]), number.down) << i;
      }
      join_halves(high.data(), low.data(), signs.data(), joined.data(), count);
      EXPECT_EQ(std::memcmp(signs.data(), v.data(), size * sizeof(float)), 0);
      for (std::size_t i = 0; i < size; ++i) {
        ASSERT_TRUE(std::isnan(w[i]) || ops::bits_of(joined[i]) == ops::bits_of(w[i])) << i;
      }
    }
  });
}

// ---- updates

struct Trial {
  Data scalars, gradient;
  std::vector<Data> written;

  void step(const ops::Op& op, int threads = 1) {
    std::vector<Data*> inputs{&scalars, &gradient}, outputs;
    for (Data& data : written) inputs.push_back(&data), outputs.push_back(&data);
    call_kernel(optimizer_kernels(), op, inputs, outputs, threads);
  }
};

Data step_scalars(std::int64_t updates, float rate = 0.01f) {
  ops::StepScalars scalars = scalars_of(9, updates);
  scalars.learning_rate = rate;
  scalars.gradient_multiplier = 0.5f;
  return scalars_data(scalars);
}

Data widened(const Data& data) {
  Data wide({DType::f32, data.type.shape});
  widen(data.type.dtype, data.bytes(), wide.as<float>(), data.size());
  return wide;
}

// Fifty updates: weights and lower halves are the f32 master of the other run, and the weights its copies.
TEST(SplitUpdate, IsTheUpdateOfAnF32Master) {
  const Shape shape{33'001};
  for (const DType gradient : kFloats) {
    for (const DType moments : {DType::f32, DType::bf16}) {
      Trial whole{step_scalars(0), random_data(gradient, shape, 1), {random_data(DType::f32, shape, 2)}};
      Trial halves{whole.scalars, whole.gradient, {Data({DType::bf16, shape})}};
      for (Trial* run : {&whole, &halves}) run->written.insert(run->written.end(), 2, Data({moments, shape}));
      whole.written.push_back(Data({DType::bf16, shape}));
      halves.written.push_back(Data({DType::u16, shape}));
      // Every seventh starts in the middle between two codes; updates that change nothing must keep it.
      auto* master = whole.written[0].as<float>();
      for (std::int64_t i = 0; i < shape.elements(); i += 7) master[i] = ops::float_of((ops::bits_of(master[i]) & 0xFFFF0000u) | 0x8000u);
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const ops::SplitNumber number = ops::split_number(master[i]);
        halves.written[0].as<std::uint16_t>()[i] = number.high;
        halves.written[3].as<std::uint16_t>()[i] = number.low;
        if (number.down) halves.written[2].set(i, -0.0);
      }
      int ties = 0;
      for (std::int64_t update = 0; update < 50; ++update) {
        whole.gradient = halves.gradient = random_data(gradient, shape, static_cast<unsigned>(10 + update));
        whole.scalars = halves.scalars = step_scalars(update, update < 3 ? 0.0f : 0.01f);
        whole.step(tests::AdamUpdate{.copy = true}, 2);
        halves.step(tests::AdamUpdate{.split = true}, 3);
      }
      ASSERT_TRUE(halves.written[0] == whole.written[3]) << base::name_of(moments);
      ASSERT_TRUE(halves.written[1] == whole.written[1]);
      for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const bool down = std::signbit(halves.written[2][i]);
        ties += down ? 1 : 0;
        ASSERT_EQ(ops::bits_of(ops::joined({halves.written[0].as<std::uint16_t>()[i], halves.written[3].as<std::uint16_t>()[i], down})),
                  ops::bits_of(master[i]));
        ASSERT_EQ(std::abs(halves.written[2][i]), whole.written[2][i]);
      }
      EXPECT_LT(ties, 20);  // one in 2^17
    }
  }
}

TEST(SplitUpdate, KeepsTiesThatStandStill) {
  const Shape shape{1030};
  Trial run{step_scalars(4, 0.0f), random_data(DType::f32, shape, 1), {Data({DType::bf16, shape})}};
  run.written.insert(run.written.end(), 2, Data({DType::f32, shape}));
  run.written.push_back(Data({DType::u16, shape}));
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    numbers.push_back(ops::float_of(0x3F000000u + static_cast<std::uint32_t>(i) * 0x10000u % 0x800000u + 0x8000u));
    const ops::SplitNumber number = ops::split_number(numbers.back());
    run.written[0].as<std::uint16_t>()[i] = number.high;
    run.written[3].as<std::uint16_t>()[i] = number.low;
    run.written[2].set(i, number.down ? -1.0 : 1.0);
  }
  const std::vector<Data> before = run.written;
  for (int repeat = 0; repeat < 3; ++repeat) run.step(tests::AdamUpdate{.split = true}, 2);
  EXPECT_TRUE(run.written[0] == before[0]);
  EXPECT_TRUE(run.written[3] == before[3]);
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    ASSERT_EQ(ops::joined({run.written[0].as<std::uint16_t>()[i], 0x8000u, std::signbit(run.written[2][i])}),
              numbers[static_cast<std::size_t>(i)]);
}

// The update in f32 of what is stored, rounded with the element's bits.
void check_rounded(const ops::Op& op, DType gradient, const std::vector<DType>& forms, std::int64_t count) {
  const Shape shape{count};
  const std::size_t states = forms.size();
  Trial lean{step_scalars(6), random_data(gradient, shape, 1), {}};
  for (std::size_t i = 0; i < states; ++i) lean.written.push_back(random_data(forms[i], shape, static_cast<unsigned>(2 + i)));
  if (states > 2)
    for (std::int64_t e = 0; e < count; ++e) lean.written[2].set(e, std::abs(lean.written[2][e]));
  Trial wide{lean.scalars, widened(lean.gradient), {}};
  for (const Data& data : lean.written) wide.written.push_back(widened(data));
  const Trial before = wide;
  Trial threads = lean;
  wide.step(op);
  lean.step(op, 1);
  threads.step(op, 3);
  const base::RandomKey key = ops::rounding_key(*lean.scalars.as<ops::StepScalars>());
  for (std::size_t i = 0; i < states; ++i) {
    EXPECT_TRUE(threads.written[i] == lean.written[i]);
    Data expected = wide.written[i];
    if (forms[i] == DType::bf16) {
      expected = Data({DType::bf16, shape});
      for (std::int64_t e = 0; e < count; ++e) {
        const float first = states > 1 ? static_cast<float>(before.written[1][e]) : 0.0f;
        const ops::RoundingBits bits =
            ops::rounding_bits(key, static_cast<float>(before.gradient[e]), static_cast<float>(before.written[0][e]), first);
        expected.as<std::uint16_t>()[e] = ops::bf16_at_random(static_cast<float>(wide.written[i][e]), i == 0   ? bits.weight
                                                                                                      : i == 1 ? bits.first
                                                                                                               : bits.second);
      }
    }
    EXPECT_TRUE(lean.written[i] == expected) << ops::name_of(op) << ", operand " << i << " of " << count;
  }
}

TEST(RoundedUpdate, IsTheUpdateInF32Rounded) {
  for (const DType gradient : kFloats) {
    for (const std::int64_t count : {1, 15, 1000, 33'001}) {
      for (const DType weight : {DType::f32, DType::bf16}) {
        for (const DType moments : {DType::f32, DType::bf16}) {
          check_rounded(tests::AdamUpdate{.weight_decay = 0.1}, gradient, {weight, moments, moments}, count);
          check_rounded(tests::AdamUpdate{.weight_decay = 0.1, .decoupled = false}, gradient, {weight, moments, moments}, count);
          check_rounded(tests::SgdUpdate{.momentum = 0.9}, gradient, {weight, moments}, count);
        }
        check_rounded(tests::SgdUpdate{.weight_decay = 0.1}, gradient, {weight}, count);
      }
    }
  }
}

// In pieces of any size: what is rounded does not depend on where in a tensor it lies.
TEST(RoundedUpdate, OfPiecesIsThatOfTheWhole) {
  constexpr std::int64_t kCount = 10'000;
  const tests::AdamUpdate op{.weight_decay = 0.1};
  const std::vector<DType> forms{DType::bf16, DType::bf16, DType::bf16};
  Trial whole{step_scalars(6), random_data(DType::bf16, Shape{kCount}, 1), {}};
  for (std::size_t i = 0; i < forms.size(); ++i)
    whole.written.push_back(random_data(forms[i], Shape{kCount}, static_cast<unsigned>(2 + i)));
  for (std::int64_t e = 0; e < kCount; ++e) whole.written[2].set(e, std::abs(whole.written[2][e]));
  Trial pieces = whole;
  whole.step(op, 2);
  for (std::int64_t first = 0, count = 1; first < kCount; first += count, count = std::min(3 * count + 1, kCount - first)) {
    std::vector<Tensor> in{pieces.scalars.tensor(), {pieces.gradient.as<std::uint16_t>() + first, {DType::bf16, Shape{count}}}}, out;
    for (Data& data : pieces.written) out.push_back({data.as<std::uint16_t>() + first, {DType::bf16, Shape{count}}});
    in.insert(in.end(), out.begin(), out.end());
    optimizer_kernels()[0].run({.op = op, .inputs = in, .outputs = out, .threads = 1});
  }
  for (std::size_t i = 0; i < forms.size(); ++i) EXPECT_TRUE(pieces.written[i] == whole.written[i]) << i;
}

// A weight of 1 that should move by 2^-12 a step, a sixteenth of the way to its neighbour below, gets there in the mean; to nearest it
// would never move.
TEST(RoundedUpdate, MovesWhatRoundingToNearestWouldNot) {
  constexpr std::int64_t kCount = 4096;
  constexpr int kSteps = 64;
  Trial run{step_scalars(0), Data({DType::f32, Shape{kCount}}), {Data({DType::bf16, Shape{kCount}})}};
  for (std::int64_t i = 0; i < kCount; ++i) run.written[0].set(i, 1.0);
  for (int step = 0; step < kSteps; ++step) {
    run.scalars = step_scalars(step, 0x1p-11f);  // half of it, with the multiplier
    for (std::int64_t i = 0; i < kCount; ++i) run.gradient.set(i, 1.0 + static_cast<double>(i) * 0x1p-23);  // alike, but not the same
    run.step(tests::SgdUpdate{});
  }
  double mean = 0.0;
  for (std::int64_t i = 0; i < kCount; ++i) mean += run.written[0][i] / kCount;
  EXPECT_NEAR(1.0 - mean, kSteps * 0x1p-12, 2e-4);
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing
