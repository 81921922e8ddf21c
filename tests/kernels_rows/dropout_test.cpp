#include "kernels/cpu/dropout_mask.h"
#include "kernels_rows/dropout_reference.h"
#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

const ops::StepScalars kScalars = scalars_at(0x123456789ABCDEFull, 77);

TEST(Dropout, MatchesItsDefinition) {
  for (DType dtype : kFloats) {
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{1, 3}, Shape{5, 7001}, Shape{2, 64, 160}}) {
      Data x = random_data(dtype, shape, 1), samples = random_ids(Shape{shape[0]}, 1 << 30, 2), scalars = scalars_data(kScalars);
      const ops::Dropout op{.rate = 0.1, .site = 42};
      const std::vector<Data> out = run_kernel(dropout_kernels(), op, {&x, &samples, &scalars}, {x.type});
      std::vector<double> expected = dropout_reference(op.rate, op.site, kScalars, shape, samples.as<std::int32_t>());
      for (std::size_t index = 0; index < expected.size(); ++index) expected[index] *= x[static_cast<std::int64_t>(index)];
      expect_close(out[0], expected);
      call_kernel(dropout_kernels(), op, {&x, &samples, &scalars}, {&x}, 2);
      EXPECT_TRUE(x == out[0]);
    }
  }
}

TEST(Dropout, CountersPassThirtyTwoBits) {
  const DropoutMask mask = dropout_mask(0.5, 7, kScalars);
  for (std::uint64_t first : {(std::uint64_t{1} << 34) - 61, (std::uint64_t{1} << 34) - 64, (std::uint64_t{5} << 34) + 3}) {
    std::vector<float> multipliers(200);
    dropout_multipliers(mask, 9, first, 200, multipliers.data());
    for (std::uint64_t index = 0; index < 200; ++index) {
      const std::uint64_t block = (first + index) / 4;
      const auto words =
          base::philox({static_cast<std::uint32_t>(block), 9, kScalars.step, static_cast<std::uint32_t>(block >> 32)}, mask.key);
      ASSERT_EQ(multipliers[index], words[(first + index) % 4] >= 0x80000000u ? 2.0f : 0.0f) << first << " + " << index;
    }
  }
}

TEST(Dropout, KeepsTheShareItShould) {
  const DropoutMask mask = dropout_mask(0.1, 7, kScalars);
  std::vector<float> multipliers(1 << 20);
  dropout_multipliers(mask, 0, 0, 1 << 20, multipliers.data());
  const auto dropped = std::count(multipliers.begin(), multipliers.end(), 0.0f);
  EXPECT_NEAR(static_cast<double>(dropped) / (1 << 20), 0.1, 0.0015);  // 5 deviations
}

TEST(Residual, AddsWhatIsKept) {
  for (DType dtype : kFloats) {
    for (double rate : {0.0, 0.25}) {
      const Shape shape{3, 101, 67};
      Data x = random_data(dtype, shape, 1), r = random_data(dtype, shape, 2), samples = random_ids(Shape{3}, 100, 3);
      Data scalars = scalars_data(kScalars);
      std::vector<Data*> inputs{&x, &r};
      if (rate > 0.0) inputs.insert(inputs.end(), {&samples, &scalars});
      const ops::Residual op{.rate = rate, .site = 5};
      const std::vector<Data> out = run_kernel(dropout_kernels(), op, inputs, {x.type});
      std::vector<double> expected = doubles(x);
      const auto kept = dropout_reference(rate, op.site, kScalars, shape, samples.as<std::int32_t>());
      for (std::size_t index = 0; index < expected.size(); ++index) expected[index] += kept[index] * r[static_cast<std::int64_t>(index)];
      expect_close(out[0], expected);
      call_kernel(dropout_kernels(), op, inputs, {&x}, 2);
      EXPECT_TRUE(x == out[0]);
    }
  }
}

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing
