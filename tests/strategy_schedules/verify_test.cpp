// Schedules that were damaged in one place are refused with the rank, the item and the reason.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "strategy/schedules/table.h"
#include "strategy/schedules/verify.h"

namespace plimsoll::strategy::schedules {
namespace {

using Items = std::vector<Item>;

std::string first_problem(std::string_view name, const Shape& shape, const std::function<void(std::vector<Items>&)>& damage) {
  Schedule schedule = build(name, shape);
  damage(schedule.ranks);
  const std::vector<std::string> problems = problems_of(schedule);
  return problems.empty() ? "accepted" : problems[0];
}

const Shape kShape{.ranks = 2, .micro_batches = 3};  // rank 0: F0 F1 B0 F2 B1 B2 U1; rank 1: F0 B0 F1 B1 F2 B2 U1

std::string damaged(const std::function<void(std::vector<Items>&)>& damage) { return first_problem("1f1b", kShape, damage); }

TEST(Verify, MissingItems) {
  EXPECT_EQ(damaged([](auto& ranks) { ranks[1].erase(ranks[1].begin() + 2); }), "rank 1: no forward of micro-batch 1 in stage 1");
  EXPECT_EQ(damaged([](auto& ranks) { ranks[0].erase(ranks[0].begin() + 4); }), "rank 0: no backward of micro-batch 1 in stage 0");
  EXPECT_EQ(damaged([](auto& ranks) { ranks[0].pop_back(); }), "rank 0: ends with version 0, expected 1 updates");
  EXPECT_EQ(damaged([](auto& ranks) { ranks.pop_back(); }), "found orders for 1 ranks, expected 2");
}

TEST(Verify, DoubledItems) {
  EXPECT_EQ(damaged([](auto& ranks) { ranks[0].insert(ranks[0].begin() + 4, ranks[0][1]); }),
            "rank 0, item 4 (forward of micro-batch 1 in stage 0): a second time, after item 1");
  EXPECT_EQ(
      damaged([](auto& ranks) { ranks[1].insert(ranks[1].begin() + 4, {.work = Work::backward_weight, .stage = 1, .micro_batch = 0}); }),
      "rank 1, item 4 (backward_weight of micro-batch 0 in stage 1): a second time, after the whole backward as item 1");
}

TEST(Verify, HalfABackward) {
  EXPECT_EQ(damaged([](auto& ranks) { ranks[1][1].work = Work::backward_input; }),
            "rank 1: no backward_weight of micro-batch 0 in stage 1");
  EXPECT_EQ(damaged([](auto& ranks) { ranks[1][1].work = Work::backward_weight; }),
            "rank 1: no backward_input of micro-batch 0 in stage 1");
}

TEST(Verify, WrongPlaces) {
  EXPECT_EQ(damaged([](auto& ranks) { ranks[1][0].stage = 0; }),
            "rank 1, item 0 (forward of micro-batch 0 in stage 0): the stage is on rank 0");
  EXPECT_EQ(damaged([](auto& ranks) { ranks[1][0].stage = 2; }),
            "rank 1, item 0 (forward of micro-batch 0 in stage 2): no such stage, expected 0 to 1");
  EXPECT_EQ(damaged([](auto& ranks) { ranks[0][0].micro_batch = 3; }),
            "rank 0, item 0 (forward of micro-batch 3 in stage 0): no such micro-batch, expected 0 to 2");
}

TEST(Verify, WrongOrderOnOneRank) {
  EXPECT_EQ(damaged([](auto& ranks) { std::swap(ranks[1][0], ranks[1][1]); }),
            "rank 1, item 0 (backward of micro-batch 0 in stage 1): before its forward, which is item 1");
  EXPECT_EQ(first_problem("zb-h1", {.ranks = 1, .micro_batches = 1}, [](auto& ranks) { std::swap(ranks[0][1], ranks[0][2]); }),
            "rank 0, item 1 (backward_weight of micro-batch 0 in stage 0): before its backward_input, which is item 2");
  EXPECT_EQ(first_problem("varuna", {.ranks = 2, .micro_batches = 1}, [](auto& ranks) { std::swap(ranks[0][1], ranks[0][2]); }),
            "rank 0, item 1 (backward of micro-batch 0 in stage 0): before its recompute, which is item 2");
  EXPECT_EQ(damaged([](auto& ranks) { std::swap(ranks[0][5], ranks[0][6]); }),
            "rank 0, item 5 (update to version 1): 1 backward of batch 0 is still to come");
}

// Rank 1 wants micro-batch 1 first, rank 0 sends it only after micro-batch 0 has come back.
TEST(Verify, RanksThatWaitForEachOther) {
  Schedule schedule = build("naive", {.ranks = 2, .micro_batches = 2});
  std::rotate(schedule.ranks[1].begin(), schedule.ranks[1].begin() + 2, schedule.ranks[1].begin() + 4);
  EXPECT_EQ(
      problems_of(schedule),
      (std::vector<std::string>{"rank 0, item 1 (backward of micro-batch 0 in stage 0): waits for ever for the backward of micro-batch 0 "
                                "in stage 1, which rank 1 has behind something that waits too",
                                "rank 1, item 0 (forward of micro-batch 1 in stage 1): waits for ever for the forward of micro-batch 1 "
                                "in stage 0, which rank 0 has behind something that waits too"}));
}

// A piece cannot need another part of itself.
TEST(Verify, JoinedItems) {
  const std::string problem = first_problem("naive", {.ranks = 1, .micro_batches = 1}, [](auto& ranks) { ranks[0][0].joined = true; });
  EXPECT_TRUE(problem.starts_with("rank 0, item 1 (backward of micro-batch 0 in stage 0): waits for ever")) << problem;
  EXPECT_EQ(first_problem("naive", {.ranks = 1, .micro_batches = 1}, [](auto& ranks) { ranks[0][1].joined = true; }),
            "rank 0, item 1 (backward of micro-batch 0 in stage 0): joined with nothing that could run beside it");
}

TEST(Verify, WrongVersions) {
  const Shape shape{.ranks = 2, .micro_batches = 1, .batches = 3};  // rank 0: F0 F1 B0 U1 F2 B1 U2 B2 U3
  const auto with = [&](std::size_t item, std::int32_t version) {
    return first_problem("pipedream", shape, [&](auto& ranks) { ranks[0][item].version = version; });
  };
  EXPECT_EQ(with(1, 1), "rank 0, item 1 (forward of micro-batch 1 in stage 0): uses version 1, but the rank has made 0 by then");
  EXPECT_EQ(with(5, 1), "rank 0, item 5 (backward of micro-batch 1 in stage 0): uses version 1, but its forward used 0");
  EXPECT_EQ(with(3, 2), "rank 0, item 3 (update to version 2): expected version 1 next");
  EXPECT_EQ(with(0, 4), "rank 0, item 0 (forward of micro-batch 0 in stage 0): version 4 of 3 batches, expected 0 to 3");
}

// Whatever is left out, doubled or moved to the front on another rank is found; so is every swap that changes the meaning.
TEST(Verify, EveryDamageIsFound) {
  for (std::string_view name : {"gpipe", "1f1b", "zb-h2", "dualpipe", "2bw"}) {
    const Schedule good = build(name, {.ranks = 4, .micro_batches = 8});
    for (std::size_t rank = 0; rank < good.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < good.ranks[rank].size(); ++i) {
        Schedule without = good;
        without.ranks[rank].erase(without.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(problems_of(without).empty()) << name << " rank " << rank << " without item " << i;
        Schedule twice = good;
        twice.ranks[rank].push_back(good.ranks[rank][i]);
        EXPECT_FALSE(problems_of(twice).empty()) << name << " rank " << rank << " twice item " << i;
        if (good.ranks[rank][i].work == Work::update) continue;
        Schedule moved = without;
        moved.ranks[(rank + 1) % 4].insert(moved.ranks[(rank + 1) % 4].begin(), good.ranks[rank][i]);
        EXPECT_FALSE(problems_of(moved).empty()) << name << " rank " << rank << " moved item " << i;
      }
    }
  }
}

TEST(Verify, RefusalIsNotLegalAndNamesTheSchedule) {
  Schedule schedule = build("1f1b", kShape);
  schedule.ranks[0].clear();
  try {
    require_valid(schedule);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 3);
    EXPECT_TRUE(std::string_view(error.what()).starts_with("the schedule \"1f1b\" cannot be run: rank 0: no forward")) << error.what();
  }
}

}  // namespace
}  // namespace plimsoll::strategy::schedules
