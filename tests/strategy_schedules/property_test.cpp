// What holds for every schedule, whatever its pieces cost.
#include <ctime>
#include <map>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "strategy/schedules/csv.h"
#include "strategy/schedules/simulate.h"
#include "strategy/schedules/table.h"
#include "strategy/schedules/verify.h"

namespace plimsoll::strategy::schedules {
namespace {

// Random shapes, made legal for each kind, and all of them checked.
template <typename Check>
void for_random_schedules(const Check& check) {
  std::mt19937 random(20240817);
  const auto between = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (const Kind& kind : kinds()) {
    int legal = 0;
    for (int trial = 0; trial < 400 && legal < 25; ++trial) {
      const Shape shape{.ranks = between(1, 9),
                        .micro_batches = between(1, 30),
                        .chunks = kind.chunked ? between(2, 4) : 1,
                        .batches = kind.asynchronous ? between(1, 4) : 1};
      if (!reasons_against(kind, shape).empty()) continue;
      ++legal;
      Schedule schedule = build(kind.name, shape);
      if (!kind.recomputes && trial % 3 == 0) schedule = with_recompute(std::move(schedule));
      Costs costs;
      costs.stages.clear();
      for (std::int64_t stage = 0; stage < shape.stages(); ++stage) {
        const auto cost = [&] { return static_cast<double>(between(1, 1000)) / 64.0; };  // sums of these are exact
        costs.stages.push_back({cost(), cost(), cost(), cost()});
      }
      costs.message = static_cast<double>(between(0, 200)) / 64.0;
      SCOPED_TRACE(fmt::format("{} p {} m {} v {} batches {}", kind.name, shape.ranks, shape.micro_batches, shape.chunks, shape.batches));
      check(schedule, costs);
    }
    EXPECT_GE(legal, 5) << kind.name;
  }
}

TEST(Property, EveryLegalScheduleIsValid) {
  for_random_schedules([](const Schedule& schedule, const Costs&) { EXPECT_EQ(problems_of(schedule), std::vector<std::string>{}); });
}

TEST(Property, NoScheduleIsFasterThanItsBounds) {
  for_random_schedules([](const Schedule& schedule, const Costs& costs) {
    const Timeline timeline = simulate(schedule, costs);
    double path = 0.0;  // one micro-batch there and back, all stages in turn
    for (std::int32_t stage = 0; stage < schedule.shape.stages(); ++stage) path += costs.of(stage).forward + costs.of(stage).backward_input;
    for (std::int32_t stage = 0; stage + 1 < schedule.shape.stages(); ++stage)
      path += schedule.rank_of(stage, 0) == schedule.rank_of(stage + 1, 0) ? 0.0 : 2.0 * costs.message;
    EXPECT_GE(timeline.makespan, path);
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      double work = 0.0;
      for (const Item& item : schedule.ranks[rank]) work += costs.of(item);
      EXPECT_EQ(timeline.busy(rank), work);
      EXPECT_GE(timeline.makespan, work);
    }
    const Figures all = figures(schedule, timeline);
    EXPECT_GE(all.bubble_fraction, -1e-12);
    EXPECT_LT(all.bubble_fraction, 1.0);
  });
}

TEST(Property, SpansFollowOrdersAndDependencies) {
  for_random_schedules([](const Schedule& schedule, const Costs& costs) {
    const Timeline timeline = simulate(schedule, costs);
    std::map<std::tuple<bool, std::int32_t, std::int32_t>, Span> spans;  // of forwards and backwards
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
        const Item& item = schedule.ranks[rank][i];
        if (i > 0 && !schedule.ranks[rank][i - 1].joined) {
          EXPECT_GE(timeline.ranks[rank][i].start, timeline.ranks[rank][i - 1].end);
        }
        if (item.work == Work::forward) spans[{true, item.stage, item.micro_batch}] = timeline.ranks[rank][i];
        if (is_backward(item.work)) spans[{false, item.stage, item.micro_batch}] = timeline.ranks[rank][i];
      }
    }
    for (const auto& [key, span] : spans) {
      const auto [forward, stage, micro_batch] = key;
      const std::int32_t before = stage + (forward ? -1 : 1);
      if (before < 0 || before >= schedule.shape.stages()) continue;
      const bool far = schedule.rank_of(stage, micro_batch) != schedule.rank_of(before, micro_batch);
      EXPECT_GE(span.start, spans.at({forward, before, micro_batch}).end + (far ? costs.message : 0.0));
    }
  });
}

// Messages of one kind between two ranks are wanted in the order in which they are sent, so that channels need no tags.
TEST(Property, MessagesOfALinkAreWantedInTheOrderTheyAreSent) {
  for_random_schedules([](const Schedule& schedule, const Costs&) {
    using Link = std::tuple<bool, std::int32_t, std::int32_t>;  // forward, from, to
    std::map<Link, std::vector<std::pair<std::int32_t, std::int32_t>>> sent;
    std::map<Link, std::vector<std::pair<std::int32_t, std::int32_t>>> wanted;
    for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
      const auto rank = static_cast<std::int32_t>(r);
      for (const Item& item : schedule.ranks[r]) {
        if (item.work != Work::forward && !is_backward(item.work)) continue;
        const bool forward = item.work == Work::forward;
        const std::int32_t step = forward ? 1 : -1;
        const auto other = [&](std::int32_t stage) { return schedule.rank_of(stage, item.micro_batch); };
        if (const std::int32_t to = item.stage + step; to >= 0 && to < schedule.shape.stages() && other(to) != rank)
          sent[{forward, rank, other(to)}].emplace_back(to, item.micro_batch);
        if (const std::int32_t from = item.stage - step; from >= 0 && from < schedule.shape.stages() && other(from) != rank)
          wanted[{forward, other(from), rank}].emplace_back(item.stage, item.micro_batch);
      }
    }
    EXPECT_EQ(sent, wanted);
  });
}

TEST(Property, FilesGiveTheScheduleBack) {
  for_random_schedules([](const Schedule& schedule, const Costs&) {
    Schedule back = parse_csv(write_csv(schedule), schedule.name, schedule.shape);
    EXPECT_EQ(back.ranks, schedule.ranks);
    EXPECT_EQ(back.shape, schedule.shape);
    EXPECT_EQ(problems_of(back), std::vector<std::string>{});
  });
}

// Sixty-four ranks, 512 micro-batches, four chunks: 262,208 items. Processor time, so that a busy machine does not count; the bound
// is far above what it takes, for sanitizers' sake.
TEST(Property, LargeSchedulesAreMadeAndCheckedQuickly) {
  const std::clock_t start = std::clock();
  const Shape shape{.ranks = 64, .micro_batches = 512, .chunks = 4};
  const Schedule schedule = build("interleaved", shape);
  EXPECT_EQ(problems_of(schedule), std::vector<std::string>{});
  const Timeline timeline = simulate(schedule, {});
  EXPECT_EQ(timeline.makespan, 3.0 * (512 * 4 + 63));
  std::size_t items = 0;
  for (const std::vector<Item>& order : schedule.ranks) items += order.size();
  EXPECT_EQ(items, 64 * (2 * 512 * 4 + 1));
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 2.0);
}

}  // namespace
}  // namespace plimsoll::strategy::schedules
