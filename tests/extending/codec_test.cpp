// Codecs that are declared here, outside src: one written from the ground up, and one made of a stored form of this file's own, with
// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codecs/builder.h"
#include "ops/step_scalars.h"
#include "ranks/coded.h"
#include "ranks/compare.h"
#include "strategy/legality.h"

namespace plimsoll::ranks {
namespace {

using codecs::Choice;
using codecs::ValueId;

// ---- all as it is, in up to three steps

codecs::Flight read_lossless(codecs::Builder& build, const codecs::Task& task, const std::vector<ValueId>& came) {
  std::vector<ValueId> made;
  for (std::size_t index = 0; index < came.size(); ++index)
    made.push_back(build.shaped(task, came[index], task.operands[index].type.shape, task.operands[index].name));
  return {made};
}

codecs::Flight add_lossless(codecs::Builder& build, const codecs::Task& task, const std::vector<ValueId>& came) {
  std::vector<ValueId> sums;
  for (std::size_t index = 0; index < came.size(); ++index) {
    const ops::SumParts sum{.members = task.plain.members, .dtype = task.operands[index].type.dtype};
    sums.push_back(build.make_one(task, sum, {came[index]}, task.operands[index].name));
  }
  if (task.wanted == codecs::Wanted::shard) return read_lossless(build, task, sums);
  return {build.collective(task, ops::CollectiveKind::all_gather, sums, "lossless.all"), read_lossless};
}

codecs::Flight send_lossless(codecs::Builder& build, const codecs::Task& task) {
  if (task.wanted == codecs::Wanted::message)
    return {
        build.make(task, task.message, task.message.receive ? std::vector<ValueId>{} : std::vector{task.operands[0].value}, "lossless")};
  std::vector<ValueId> parts;
  for (const codecs::Operand& operand : task.operands) {
    if (task.wanted == codecs::Wanted::gather) {
      parts.push_back(operand.value);
    } else {
      const base::Shape rows = operand.shard > 0 ? base::Shape{task.plain.members, operand.shard} : operand.whole;
      parts.push_back(build.shaped(task, operand.value, rows, operand.name + ".rows"));
    }
  }
  if (task.wanted == codecs::Wanted::gather) return {build.make(task, task.plain, parts, "lossless"), read_lossless};
  return {build.collective(task, ops::CollectiveKind::all_to_all, parts, "lossless.dealt"), add_lossless};
}

std::string uneven(const codecs::Ask& ask) {
  const bool sums = ask.wanted == codecs::Wanted::sum || ask.wanted == codecs::Wanted::shard;
  const bool small = ask.type.shape.rank() == 1 && ask.type.shape.elements() < ask.members * ops::kSumBlock;
  return small || (sums && ask.type.shape.rank() > 1 && ask.type.shape.rows() % ask.members != 0) ? "it cannot be dealt evenly" : "";
}

constexpr codecs::Codec kLossless{
    .name = "lossless", .about = "as it is, in parts", .emit = send_lossless, .wire_bytes = codecs::plain_bytes, .exact = uneven};

TEST(OwnCodec, OneThatLosesNothingChangesNoBit) {
  const Choice lossless{.codec = &kLossless};
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    for (const std::int64_t data : {2, 4}) {
      for (const bool keep_grads : {true, false}) {
        if (zero < 2 && !keep_grads) continue;
        strategy::Strategy plain = over(data, zero);
        plain.keep_grads = keep_grads;
        SCOPED_TRACE(strategy::describe(plain));
        expect_same_bits(train(small_task(), {.strategy = with(plain, lossless, lossless)}), train(small_task(), {.strategy = plain}));
      }
    }
  }
}

TEST(OwnCodec, OneThatLosesNothingChangesNoBitBetweenTensorRanksAndStages) {
  const Choice lossless{.codec = &kLossless};
  for (const bool by_rows : {false, true}) {
    for (const std::int64_t pipe : {1, 2}) {
      strategy::Strategy plain = over(1, 0, 2, pipe);
      plain.sequence_parallel = by_rows;
      SCOPED_TRACE(strategy::describe(plain));
      expect_same_bits(train(small_task(), {.strategy = with(plain, {}, {}, lossless)}), train(small_task(), {.strategy = plain}));
    }
  }
}

// ---- a sign for each element and the mean magnitude of a block, with what that loses kept for the next gradient

void signs_of(const float* values, std::int64_t blocks, std::uint8_t* records) {
  for (std::int64_t block = 0; block < blocks; ++block, values += 64, records += 12) {
    float sum = 0.0f;
    std::fill_n(records, 12, std::uint8_t{0});
    for (int index = 0; index < 64; ++index) {
      sum += std::abs(values[index]);
      if (values[index] >= 0.0f) records[index / 8] |= static_cast<std::uint8_t>(1u << (index % 8));
    }
    const float mean = sum / 64.0f;
    std::memcpy(records + 8, &mean, sizeof(mean));
  }
}

void elements_of(const std::uint8_t* records, std::int64_t blocks, float* values) {
  for (std::int64_t block = 0; block < blocks; ++block, values += 64, records += 12) {
    float mean = 0.0f;
    std::memcpy(&mean, records + 8, sizeof(mean));
    for (int index = 0; index < 64; ++index) values[index] = (records[index / 8] >> (index % 8) & 1) != 0 ? mean : -mean;
  }
}

constexpr ops::FormInfo kSigns{.name = "signs", .block = 64, .record = 12, .encode = {{signs_of}}, .decode = {{elements_of}}};
const codecs::Codec kSignCodec = codecs::form_codec(kSigns, "signs with a magnitude for each block");

TEST(OwnCodec, OfSignsWithMemoryTrainsUnderZeRO2) {
  Task task = small_task();
  task.steps = 12;
  const strategy::Strategy plain = over(2, 2);
  const Outcome exact = train(task, {.strategy = plain, .micro = 4});
  const auto coded = [&](double feedback) {
    return train(task, {.strategy = with(plain, {.codec = &kSignCodec, .numbers = {feedback}}), .micro = 4});
  };
  const Outcome found = coded(1.0);
  EXPECT_EQ(found.sent, found.predicted);
  EXPECT_LT(found.sent[0], exact.sent[0]);
  const auto off = [&](const Outcome& outcome) { return std::abs(outcome.losses.back() - exact.losses.back()); };
  EXPECT_LT(found.losses.back(), found.losses.front());
  EXPECT_LT(off(found), 0.5 * (exact.losses.front() - exact.losses.back()));
  EXPECT_NE(found.losses, coded(0.0).losses);  // what it remembers counts
}

}  // namespace
}  // namespace plimsoll::ranks
