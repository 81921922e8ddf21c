// Every codec for everything it may be asked for, on ranks that are emulated by the operators' references: against what is sent as it is,
// against error feedback written out, and by the bytes of its closed form.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <fmt/format.h>

#include "codecs/emulation.h"
#include "codecs/table.h"
#include "kernels/cpu/reference/convert.h"
#include "ops/step_scalars.h"

namespace plimsoll::codecs {
namespace {

using base::DType;
using base::Shape;

Choice named(std::string_view name, bool feedback = false) {
  Choice choice = choice_of(*find_codec(name), Use::gradients);
  if (!feedback) choice.numbers = {};
  return choice;
}

// The same for the same rank and step.
Values drawn(std::int64_t count, unsigned seed, double size = 1.0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, size);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = kernels::cpu::reference::rounded(normal(random), DType::f32);
  return values;
}

// Relative to the largest of a block, what rounding to the codec's codes is off by at most.
double step_of(std::string_view name) {
  return name == "bf16" ? 1.0 / 256 : name == "int8" ? 1.0 / 250 : name == "fp8" ? 1.0 / 15 : 1.0 / 13;
}

struct Question {
  Wanted wanted;
  bool by_rows;
  Shape whole;
};

std::vector<Question> questions() {
  return {{Wanted::sum, false, Shape{70, 64}},    {Wanted::shard, false, Shape{5000}},   {Wanted::gather, false, Shape{5000}},
          {Wanted::sum, true, Shape{12, 100}},    {Wanted::shard, true, Shape{12, 100}}, {Wanted::gather, true, Shape{13, 100}},
          {Wanted::message, false, Shape{7, 100}}};
}

// What every rank should have, in double.
std::vector<Values> expected(const Emulation& emulation, const std::vector<Values>& given, const Question& question) {
  const std::size_t members = given.size();
  std::vector<Values> made(members);
  const std::int64_t rows = question.by_rows ? question.whole.rows() : 0;
  if (question.wanted == Wanted::message) return given;
  if (question.wanted == Wanted::gather) {
    Values all;
    for (const Values& part : given) all.insert(all.end(), part.begin(), part.end());
    return std::vector<Values>(members, all);
  }
  Values sum(given[0].size(), 0.0);
  for (const Values& values : given) {
    for (std::size_t index = 0; index < sum.size(); ++index) sum[index] += values[index];
  }
  if (question.wanted == Wanted::sum) return std::vector<Values>(members, sum);
  const std::int64_t count = rows > 0 ? rows : emulation.ask().type.shape.elements();
  sum.resize(static_cast<std::size_t>(count * (rows > 0 ? question.whole[-1] : 1)), 0.0);
  const std::size_t each = sum.size() / members;
  for (std::size_t rank = 0; rank < members; ++rank)
    made[rank].assign(sum.begin() + static_cast<std::ptrdiff_t>(rank * each), sum.begin() + static_cast<std::ptrdiff_t>((rank + 1) * each));
  return made;
}

std::size_t own_elements(const Question& question, std::int64_t members, std::int64_t rank) {
  const std::int64_t unit = members * ops::kSumBlock;
  const std::int64_t padded = (question.whole.elements() + unit - 1) / unit * unit;
  if (question.wanted != Wanted::gather) return static_cast<std::size_t>(question.whole.elements());
  const ops::Seat seat{.members = members, .place = rank};
  return static_cast<std::size_t>(question.by_rows ? seat.units_here(question.whole.rows()) * question.whole[-1] : padded / members);
}

TEST(Codecs, GiveWhatIsWantedToRounding) {
  for (const Codec* codec : codecs()) {
    for (const Question& question : questions()) {
      for (const std::int64_t members : {2, 3, 4}) {
        Emulation emulation({.choice = named(codec->name),
                             .wanted = question.wanted,
                             .whole = question.whole,
                             .members = members,
                             .by_rows = question.by_rows});
        SCOPED_TRACE(fmt::format("{}, {} of {} on {}", codec->name, static_cast<int>(question.wanted), to_string(question.whole), members));
        ASSERT_EQ(why_exact(emulation.ask()), "");
        std::vector<Values> given;
        for (std::int64_t rank = 0; rank < members; ++rank)
          given.push_back(drawn(static_cast<std::int64_t>(own_elements(question, members, rank)), static_cast<unsigned>(rank) + 1));
        const std::vector<Values> found = emulation.step(given);
        const std::vector<Values> wanted = expected(emulation, given, question);
        // Each of the ranks' summands and their sum are off by a step of a block whose largest element is below 4.5 of its deviations.
        const double summands = question.wanted == Wanted::sum || question.wanted == Wanted::shard ? static_cast<double>(members) : 0.0;
        const double limit = step_of(codec->name) * 4.5 * (summands + 1.5 * std::sqrt(static_cast<double>(members)));
        for (std::size_t rank = 0; rank < found.size(); ++rank) {
          ASSERT_GE(found[rank].size(), wanted[rank].size());
          for (std::size_t index = 0; index < wanted[rank].size(); ++index)
            ASSERT_NEAR(found[rank][index], wanted[rank][index], limit) << rank << " " << index;
          if (question.wanted == Wanted::sum) {
            EXPECT_EQ(found[rank], found[0]);
          }
        }
        EXPECT_EQ(emulation.sent_bytes(), wire_bytes(emulation.ask()));
        EXPECT_LT(emulation.sent_bytes(), plain_bytes(emulation.ask()));
      }
    }
  }
}

Values coded(const ops::FormInfo& form, const Values& values) {
  const std::vector<float> given(values.begin(), values.end());
  std::vector<float> sent(values.size());
  std::vector<std::uint8_t> stored(static_cast<std::size_t>(form.bytes(std::ssize(given))));
  ops::encode_rows(form, std::ssize(given), given, stored);
  ops::decode_rows(form, std::ssize(given), stored, sent);
  return {sent.begin(), sent.end()};
}

double f32(double value) { return static_cast<double>(static_cast<float>(value)); }

// N ranks written out: what each sends, what each part's owner makes of it, and what all then have. The loss scale changes on the way,
// and the third step is skipped.
void follow(std::string_view name, Wanted wanted, std::int64_t members) {
  const std::int64_t count = 5000;
  const std::int64_t unit = members * ops::kSumBlock;
  const auto padded = static_cast<std::size_t>((count + unit - 1) / unit * unit);
  Emulation emulation(
      {.choice = named(name, true), .wanted = wanted, .whole = Shape{count}, .members = members, .by_rows = false, .remembers = true});
  const ops::FormInfo& form = ops::form_named(name);
  std::vector<Values> errors(static_cast<std::size_t>(members), Values(padded, 0.0));
  Values sum_error(padded, 0.0), given_sum(padded, 0.0), sent_sum(padded, 0.0);
  for (unsigned step = 0; step < 6; ++step) {
    ops::StepScalars scalars;
    scalars.loss_scale = step < 2 ? 1024.0f : 64.0f;
    scalars.skip = step == 2 ? 1 : 0;
    const double scale = scalars.loss_scale;
    std::vector<Values> given;
    std::vector<Values> kept = errors;
    Values sum(padded, 0.0), kept_sum = sum_error;
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      given.push_back(drawn(count, 100 * step + static_cast<unsigned>(rank), scale));
      Values z = given.back();
      z.resize(padded, 0.0);
      for (std::size_t index = 0; index < padded; ++index) z[index] = f32(z[index] + scale * errors[rank][index]);
      const Values sent = coded(form, z);
      for (std::size_t index = 0; index < padded; ++index) {
        kept[rank][index] = index < static_cast<std::size_t>(count) ? f32(z[index] - sent[index]) / scale : 0.0;
        sum[index] = f32(sum[index] + sent[index]);
      }
    }
    Values out = sum;
    if (wanted == Wanted::sum) {
      for (std::size_t index = 0; index < padded; ++index) sum[index] = f32(sum[index] + scale * sum_error[index]);
      out = coded(form, sum);
      for (std::size_t index = 0; index < padded; ++index) kept_sum[index] = f32(sum[index] - out[index]) / scale;
    }
    const std::vector<Values> found = emulation.step(given, scalars);
    if (scalars.skip == 0) {
      errors = kept;
      sum_error = kept_sum;
      for (std::size_t index = 0; index < padded; ++index) {
        sent_sum[index] += out[index] / scale;
        for (const Values& values : given) given_sum[index] += index < values.size() ? values[index] / scale : 0.0;
      }
    }
    for (std::int64_t rank = 0; rank < members; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const std::size_t first = wanted == Wanted::shard ? at * (padded / static_cast<std::size_t>(members)) : 0;
      for (std::size_t index = 0; index < found[at].size(); ++index)
        ASSERT_EQ(found[at][index], out[first + index]) << rank << " " << index;
      const Values error = emulation.state(rank, ".error");
      for (std::size_t index = 0; index < error.size(); ++index) ASSERT_EQ(error[index], errors[at][index]) << rank << " " << index;
      if (wanted == Wanted::shard) continue;
      const Values own = emulation.state(rank, ".sum_error");
      for (std::size_t index = 0; index < own.size(); ++index) ASSERT_EQ(own[index], sum_error[at * own.size() + index]) << rank;
    }
  }
  // What came out is what went in, less what is still to be sent.
  for (std::size_t index = 0; index < static_cast<std::size_t>(count); ++index) {
    double left = sum_error[index];
    for (const Values& error : errors) left += error[index];
    ASSERT_NEAR(sent_sum[index], given_sum[index] - left, 1e-4);
  }
}

TEST(ErrorFeedback, IsThatOfRanksWrittenOut) {
  for (const std::string_view name : {"int8", "int4", "fp8"}) {
    for (const Wanted wanted : {Wanted::sum, Wanted::shard}) {
      for (const std::int64_t members : {2, 3, 4}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} ranks", name, wanted == Wanted::sum ? "sum" : "shard", members));
        follow(name, wanted, members);
      }
    }
  }
}

TEST(Codecs, LeaveAsTheyAreWhatTheyCouldNotShorten) {
  const auto why = [](std::string_view name, Wanted wanted, const base::TensorType& type, std::int64_t members) {
    return why_exact({.choice = named(name), .wanted = wanted, .type = type, .members = members});
  };
  EXPECT_EQ(why("int8", Wanted::sum, {DType::f32, Shape{2047}}, 2), "it has 2047 elements, less than 1024 for each of 2 ranks");
  EXPECT_EQ(why("int8", Wanted::sum, {DType::f32, Shape{2048}}, 2), "");
  EXPECT_EQ(why("int8", Wanted::shard, {DType::f32, Shape{13, 64}}, 2), "its 13 rows cannot be dealt evenly to 2 ranks");
  EXPECT_EQ(why("int8", Wanted::gather, {DType::f32, Shape{13, 64}}, 2), "");
  EXPECT_EQ(why("int8", Wanted::message, {DType::f32, Shape{10, 16}}, 2), "its 640 bytes would become 660");
  EXPECT_EQ(why("bf16", Wanted::sum, {DType::f16, Shape{4096}}, 2), "its elements have two bytes already");
}

TEST(Codecs, NameTheirSettings) {
  EXPECT_EQ(words(named("int8", true), Use::gradients), "int8");
  EXPECT_EQ(words(named("int8"), Use::gradients), "int8 (error_feedback false)");
  EXPECT_EQ(words(choice_of(*find_codec("int8"), Use::weights), Use::weights), "int8");
  EXPECT_FALSE(remembers(choice_of(*find_codec("int8"), Use::weights)));
  EXPECT_TRUE(remembers(choice_of(*find_codec("int8"), Use::gradients)));
  EXPECT_EQ(find_codec("int7"), nullptr);
}

}  // namespace
}  // namespace plimsoll::codecs
