// Shapes that a schedule cannot have: the reason, what was found and the nearest that would do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "strategy/schedules/table.h"

namespace plimsoll::strategy::schedules {
namespace {

std::string refusal(std::string_view name, const Shape& shape, int exit_code = 3) {
  try {
    build(name, shape);
    return "accepted";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), exit_code);
    return error.what();
  }
}

TEST(Legality, InterleavedNeedsGroupsOfRanks) {
  EXPECT_EQ(
      refusal("interleaved", {.ranks = 4, .micro_batches = 6, .chunks = 2}),
      "the schedule \"interleaved\" cannot be used: found 6 micro-batches, expected a multiple of the 4 pipeline ranks; the nearest is 4 "
      "or 8");
  EXPECT_NE(refusal("interleaved", {.ranks = 4, .micro_batches = 3, .chunks = 2}).find("the nearest is 4"), std::string::npos);
  EXPECT_NE(refusal("interleaved", {.ranks = 4, .micro_batches = 8}).find("use \"chunks\": 2, or \"schedule\": \"1f1b\""),
            std::string::npos);
}

TEST(Legality, OthersHaveOneStagePerRank) {
  for (const Kind& kind : kinds()) {
    if (kind.chunked) continue;
    const std::string reason = refusal(kind.name, {.ranks = 2, .micro_batches = 8, .chunks = 2});
    EXPECT_NE(reason.find("found \"chunks\": 2"), std::string::npos) << reason;
    EXPECT_NE(reason.find("\"interleaved\""), std::string::npos) << reason;
  }
}

TEST(Legality, TooFewMicroBatches) {
  EXPECT_NE(refusal("zb-h2", {.ranks = 4, .micro_batches = 6}).find("found 6 micro-batches, expected at least 7"), std::string::npos);
  EXPECT_NE(refusal("2bw", {.ranks = 4, .micro_batches = 1}).find("found 1 micro-batch, expected at least 4"), std::string::npos);
  EXPECT_NE(refusal("dualpipe", {.ranks = 4, .micro_batches = 6}).find("expected at least 8"), std::string::npos);
}

TEST(Legality, DualPipeIsEven) {
  EXPECT_NE(refusal("dualpipe", {.ranks = 3, .micro_batches = 8}).find("the nearest is 2 or 4"), std::string::npos);
  EXPECT_NE(refusal("dualpipe", {.ranks = 1, .micro_batches = 8}).find("the nearest is 2"), std::string::npos);
  EXPECT_NE(refusal("dualpipe", {.ranks = 4, .micro_batches = 9}).find("the nearest is 10"), std::string::npos);
}

TEST(Legality, OnlyAsynchronousSchedulesGoOnWithoutAFlush) {
  EXPECT_NE(refusal("1f1b", {.ranks = 2, .micro_batches = 2, .batches = 2}).find("found 2 batches in a row"), std::string::npos);
}

TEST(Legality, CountsThatCannotBe) {
  EXPECT_NE(refusal("1f1b", {.ranks = 0, .micro_batches = 2}).find("found 0 ranks, expected at least 1"), std::string::npos);
  EXPECT_NE(refusal("gpipe", {.ranks = 1, .micro_batches = -2}).find("found -2 micro-batches"), std::string::npos);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_NE(refusal("gpipe", {.ranks = huge, .micro_batches = huge}).find("expected at most 8388608 pieces"), std::string::npos);
}

TEST(Legality, UnknownNamesAreBadInput) {
  EXPECT_NE(refusal("1fb1", {}, 2).find("did you mean \"1f1b\"?"), std::string::npos);
  EXPECT_NE(refusal("interleave", {}, 2).find("did you mean \"interleaved\"?"), std::string::npos);
  EXPECT_EQ(refusal("something else", {}, 2).find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::strategy::schedules
