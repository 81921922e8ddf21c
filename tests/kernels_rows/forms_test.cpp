// Forms of blocks with a scale: what encoding loses, what it does not, and that kernels give the bits of the forms' own functions.
#include "ops/forms/form.h"

#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/random.h"
#include "kernels/cpu/reference/convert.h"
#include "kernels_rows/harness.h"
#include "ops/encode.h"
#include "ops/forms/all.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu::testing {
namespace {

using Record = std::vector<std::uint8_t>;

std::vector<float> drawn(std::int64_t count, float scale, std::uint64_t seed) {
  std::vector<float> values;
  for (std::int64_t n = 0; n < count; ++n) {
    const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(n), 0, 0, 0}, base::random_key(seed, 11));
    values.push_back(scale * base::normal_from_bits(bits[0], bits[1])[0]);
  }
  return values;
}

Record encoded(const ops::FormInfo& form, std::span<const float> block) {
  Record record(static_cast<std::size_t>(form.record));
  form.encode.here()(block.data(), 1, record.data());
  return record;
}

std::vector<float> decoded(const ops::FormInfo& form, const Record& record) {
  std::vector<float> values(static_cast<std::size_t>(form.block));
  form.decode.here()(record.data(), 1, values.data());
  return values;
}

float largest(std::span<const float> values) {
  float most = 0.0f;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

// Half a step at the largest code, relative to the largest of the block, with 2^-9 for the scale's own rounding.
double allowed(std::string_view form) {
  const double step = form == "int8" ? 0.5 / 127.0 : form == "int4" ? 0.5 / 7.0 : 16.0 / 448.0;
  return step * (1.0 + 0x1p-8);
}

class Forms : public ::testing::TestWithParam<ops::FormInfo> {};

TEST_P(Forms, EncodingLosesHalfAStep) {
  const ops::FormInfo& form = GetParam();
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> block = drawn(form.block, std::ldexp(1.0f, static_cast<int>(seed) - 80), seed);
    const std::vector<float> back = decoded(form, encoded(form, block));
    for (std::size_t i = 0; i < block.size(); ++i)
      ASSERT_LE(std::abs(back[i] - block[i]), allowed(form.name) * static_cast<double>(largest(block))) << seed << ", element " << i;
  }
}

TEST_P(Forms, WhatWasDecodedEncodesToTheSameRecord) {
  const ops::FormInfo& form = GetParam();
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Record once = encoded(form, drawn(form.block, std::ldexp(0.7f, static_cast<int>(seed % 160) - 80), seed));
    ASSERT_EQ(encoded(form, decoded(form, once)), once) << seed;
  }
}

TEST_P(Forms, ZerosStayAndWhatIsNotFiniteSpoilsItsBlock) {
  const ops::FormInfo& form = GetParam();
  std::vector<float> block(static_cast<std::size_t>(form.block), 0.0f);
  EXPECT_EQ(decoded(form, encoded(form, block)), block);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    block[5] = bad;
    for (const float value : decoded(form, encoded(form, block))) EXPECT_TRUE(std::isnan(value));
  }
}

// Over all random bits, the mean of what an element becomes is the element.
template <typename Codes>
void expect_means_are_elements() {
  using Form = ops::BlockForm<Codes>;
  const std::vector<float> block = drawn(Form::kBlock, 1.0f, 3);
  std::vector<double> sums(block.size(), 0.0);
  std::vector<std::uint32_t> random(block.size());
  std::vector<float> back(block.size());
  Record record(static_cast<std::size_t>(Form::kRecord));
  constexpr std::uint32_t kDraws = 1u << 12;
  for (std::uint32_t draw = 0; draw < kDraws; ++draw) {
    std::fill(random.begin(), random.end(), draw << 4 | 8u);
    Form::encode(block.data(), record.data(), ops::AtRandom{random.data()});
    Form::decode(record.data(), back.data());
    for (std::size_t i = 0; i < block.size(); ++i) sums[i] += back[i];
  }
  const float most = largest(block);
  for (std::size_t i = 0; i < block.size(); ++i) {
    // The largest may lie a little beyond the largest code.
    const double slack = std::abs(block[i]) == most ? 0x1p-8 : 1e-3 * 2.0 * allowed(Codes::kName);
    EXPECT_NEAR(sums[i] / kDraws, block[i], slack * static_cast<double>(most)) << Codes::kName << ", element " << i;
  }
}

template <typename... Codes>
void expect_means_are_elements(ops::FormList<Codes...>) {
  (expect_means_are_elements<Codes>(), ...);
}

TEST(FormsAtRandom, MeansAreTheElements) { expect_means_are_elements(ops::AllForms{}); }

// Every instruction set that is here gives the bits of the plain code.
TEST_P(Forms, AreTheSameBitsOnEveryInstructionSet) {
  const ops::FormInfo& form = GetParam();
  constexpr std::int64_t kBlocks = 5;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> values = drawn(kBlocks * form.block, std::ldexp(0.9f, static_cast<int>(seed % 160) - 80), seed);
    Record expected(static_cast<std::size_t>(kBlocks * form.record)), found(expected.size());
    std::vector<float> elements(values.size()), back(values.size());
    form.encode.of(base::RowCode::plain)(values.data(), kBlocks, expected.data());
    form.decode.of(base::RowCode::plain)(expected.data(), kBlocks, elements.data());
    for (const base::RowCode code : codes_here()) {
      form.encode.of(code)(values.data(), kBlocks, found.data());
      form.decode.of(code)(expected.data(), kBlocks, back.data());
      ASSERT_EQ(found, expected) << seed;
      ASSERT_EQ(back, elements) << seed;
    }
  }
}

TEST(Fp8Codes, AreThoseOfTheElementType) {
  for (std::uint32_t code = 0; code < 0x100; ++code) {
    if ((code & 0x7Fu) == 0x7Fu) continue;  // not a number
    const float value = ops::Fp8Codes::value(code);
    EXPECT_EQ(ops::Fp8Codes::code(value, ops::ToNearest{}, 0), code);
    const auto bits = static_cast<std::uint8_t>(code);
    EXPECT_EQ(static_cast<double>(value), reference::load(&bits, {base::DType::f8e4m3, base::Shape{1}})[0]);
  }
}

// Rows that no block divides: every row begins with a record of its own.
TEST_P(Forms, RowsAreStoredApart) {
  const ops::FormInfo& form = GetParam();
  constexpr std::int64_t kColumns = 150, kRows = 3;
  const std::vector<float> values = drawn(kColumns * kRows, 1.0f, 9);
  std::vector<std::uint8_t> stored(static_cast<std::size_t>(kRows * form.bytes(kColumns)));
  ops::encode_rows(form, kColumns, values, stored);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<std::uint8_t> alone(static_cast<std::size_t>(form.bytes(kColumns)));
    ops::encode_rows(form, kColumns, std::span(values).subspan(static_cast<std::size_t>(row * kColumns), kColumns), alone);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), stored.begin() + row * form.bytes(kColumns)));
  }
  std::vector<float> back(values.size());
  ops::decode_rows(form, kColumns, stored, back);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 0.3);
}

TEST_P(Forms, KernelsGiveTheBitsOfTheForm) {
  const ops::FormInfo& form = GetParam();
  for (const std::int64_t columns : {std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, std::int64_t{1089}, std::int64_t{2048}}) {
    const base::Shape shape{5, columns};
    std::vector<float> values = drawn(shape.elements(), 0.02f, 17);
    const base::TensorType type = ops::stored_type(form, shape);
    std::vector<std::uint8_t> expected(static_cast<std::size_t>(type.bytes())), found(expected.size());
    ops::encode_rows(form, columns, values, expected);
    const ops::Op encode = ops::Encode{.form = &form};
    const std::array in{Tensor{values.data(), {base::DType::f32, shape}}};
    const std::array out{Tensor{found.data(), type}};
    kernel_named("encode.simd").run({.op = encode, .inputs = in, .outputs = out, .threads = 2});
    EXPECT_EQ(found, expected) << columns;

    std::vector<float> back(values.size()), made(values.size());
    ops::decode_rows(form, columns, expected, back);
    const ops::Op decode = ops::Decode{.form = &form, .columns = columns};
    const std::array records{Tensor{expected.data(), type}};
    const std::array elements{Tensor{made.data(), {base::DType::f32, shape}}};
    kernel_named("decode.simd").run({.op = decode, .inputs = records, .outputs = elements, .threads = 2});
    EXPECT_EQ(made, back) << columns;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Forms, ::testing::ValuesIn(ops::forms().begin(), ops::forms().end()),
                         [](const auto& form) { return std::string(form.param.name); });

}  // namespace
}  // namespace plimsoll::kernels::cpu::testing
