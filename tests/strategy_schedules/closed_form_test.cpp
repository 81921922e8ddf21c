// Simulated schedules against closed forms, over grids of ranks p, micro-batches m and chunks v. Times are whole numbers, so they
// are compared exactly.
#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "strategy/schedules/simulate.h"
#include "strategy/schedules/table.h"
#include "strategy/schedules/verify.h"

namespace plimsoll::strategy::schedules {
namespace {

struct Ran {
  Schedule schedule;
  Timeline timeline;
  Figures figures;
};

Ran ran(Schedule schedule, const StageCost& cost) {
  EXPECT_EQ(problems_of(schedule), std::vector<std::string>{});
  const Timeline timeline = simulate(schedule, {.stages = {cost}});
  const Figures all = figures(schedule, timeline);
  return {std::move(schedule), timeline, all};
}

Ran ran(std::string_view name, const Shape& shape, const StageCost& cost = {}) { return ran(build(name, shape), cost); }

std::string named(const Shape& shape) {
  return fmt::format("p {} m {} v {} batches {}", shape.ranks, shape.micro_batches, shape.chunks, shape.batches);
}

constexpr std::array<std::int64_t, 6> kRanks{1, 2, 3, 4, 8, 16};
constexpr std::array<std::int64_t, 8> kMicroBatches{1, 2, 3, 4, 8, 15, 32, 64};

// Forward and both parts of the backward.
constexpr std::array<StageCost, 3> kCosts{{{1, 1, 0, 1}, {1, 1, 1, 1}, {3, 4, 3, 3}}};

// A forward pass follows where every stage of the rank has had a backward pass: gradients of all of its weights are there by then.
bool begins_again(const std::vector<Item>& items) {
  std::set<std::int32_t> stages, had;
  for (const Item& item : items) {
    if (item.work == Work::forward) stages.insert(item.stage);
  }
  for (const Item& item : items) {
    if (item.work == Work::backward || item.work == Work::backward_weight) had.insert(item.stage);
    if (item.work == Work::forward && had == stages) return true;
  }
  return false;
}

double whole(const StageCost& cost) { return cost.forward + cost.backward_input + cost.backward_weight; }

TEST(ClosedForm, GPipeAndOneForwardOneBackward) {
  for (std::int64_t p : kRanks) {
    for (std::int64_t m : kMicroBatches) {
      for (const StageCost& cost : kCosts) {
        const Shape shape{.ranks = p, .micro_batches = m};
        SCOPED_TRACE(named(shape));
        for (std::string_view name : {"gpipe", "1f1b"}) {
          const Ran got = ran(name, shape, cost);
          EXPECT_EQ(got.figures.makespan, static_cast<double>(m + p - 1) * whole(cost)) << name;
          EXPECT_NEAR(got.figures.bubble_fraction, static_cast<double>(p - 1) / static_cast<double>(m + p - 1), 1e-12) << name;
          for (std::int64_t r = 0; r < p; ++r) {
            const std::int64_t live = name == "gpipe" ? m : std::min(p - r, m);
            EXPECT_EQ(got.figures.peak_live[static_cast<std::size_t>(r)], live) << name << " rank " << r;
            EXPECT_EQ(got.figures.versions[static_cast<std::size_t>(r)], 1);
            const std::int64_t neighbours = (r > 0 ? 1 : 0) + (r + 1 < p ? 1 : 0);
            EXPECT_EQ(got.figures.messages[static_cast<std::size_t>(r)], neighbours * m);
          }
        }
      }
    }
  }
}

// What the planner asks a row for is what its schedule does, on every shape that the schedule takes.
TEST(ClosedForm, RowsStateWhatTheirSchedulesHold) {
  for (const Kind& kind : kinds()) {
    if (kind.holds == nullptr) continue;
    int shapes = 0;
    for (std::int64_t p : kRanks) {
      for (std::int64_t m : {1, 2, 3, 4, 7, 8, 12, 16, 31, 32}) {
        for (std::int64_t v : {1, 2, 3}) {
          const Shape shape{.ranks = p, .micro_batches = m, .chunks = v};
          if (!reasons_against(kind, shape).empty()) continue;
          SCOPED_TRACE(fmt::format("{} {}", kind.name, named(shape)));
          const Ran got = ran(kind.name, shape, {1, 1, 1, 1});
          for (std::int64_t r = 0; r < p; ++r) {
            EXPECT_EQ(got.figures.peak_live[static_cast<std::size_t>(r)], kind.holds(shape, r)) << "rank " << r;
            EXPECT_LE(kind.is_steady(shape, r), begins_again(got.schedule.ranks[static_cast<std::size_t>(r)])) << "rank " << r;
          }
          ++shapes;
        }
      }
    }
    EXPECT_GT(shapes, 10) << kind.name;
  }
}

TEST(ClosedForm, NaiveTakesAllStagesInTurn) {
  for (std::int64_t p : kRanks) {
    for (std::int64_t m : {1, 3}) {
      const Ran got = ran("naive", {.ranks = p, .micro_batches = m}, {3, 4, 3, 3});
      EXPECT_EQ(got.figures.makespan, static_cast<double>(m * p * 10));
      EXPECT_EQ(*std::max_element(got.figures.peak_live.begin(), got.figures.peak_live.end()), 1);
    }
  }
}

TEST(ClosedForm, InterleavedDividesTheBubbleByItsChunks) {
  for (std::int64_t p : {1, 2, 4, 8}) {
    for (std::int64_t groups : {1, 2, 4}) {
      for (std::int64_t v : {2, 3, 4}) {
        const Shape shape{.ranks = p, .micro_batches = p * groups, .chunks = v};
        SCOPED_TRACE(named(shape));
        const StageCost chunk{1, 1, 1, 1};
        const Ran got = ran("interleaved", shape, chunk);
        // A rank's share of a micro-batch takes v chunks; the bubble is (p-1) of one chunk.
        EXPECT_EQ(got.figures.makespan, static_cast<double>(shape.micro_batches * v + p - 1) * whole(chunk));
        for (std::int64_t r = 0; r < p; ++r) {
          const std::int64_t live = std::min(2 * (p - r - 1) + (v - 1) * p + 1, shape.micro_batches * v);
          EXPECT_EQ(got.figures.peak_live[static_cast<std::size_t>(r)], live) << "rank " << r;
        }
        const std::int64_t sent = std::accumulate(got.figures.messages.begin(), got.figures.messages.end(), std::int64_t{0});
        EXPECT_EQ(sent, p == 1 ? 0 : 2 * shape.micro_batches * (p * v - 1));
      }
    }
  }
}

TEST(ClosedForm, ZeroBubbleH1) {
  for (std::int64_t p : {1, 2, 3, 4, 8, 16}) {
    for (std::int64_t m : {p, p + 1, 2 * p, 3 * p, 5 * p}) {
      const Shape shape{.ranks = p, .micro_batches = m};
      SCOPED_TRACE(named(shape));
      const Ran got = ran("zb-h1", shape);
      EXPECT_EQ(got.figures.makespan, static_cast<double>(3 * m + p - 1));
      EXPECT_NEAR(got.figures.bubble_fraction, static_cast<double>(p - 1) / static_cast<double>(3 * m + p - 1), 1e-12);
      EXPECT_EQ(got.figures.peak_live, std::vector<std::int64_t>(static_cast<std::size_t>(p), p));
    }
  }
}

TEST(ClosedForm, ZeroBubbleH2IsAParallelogram) {
  for (std::int64_t p : {1, 2, 3, 4, 8, 16}) {
    for (std::int64_t m : {2 * p - 1, 2 * p, 3 * p, 5 * p}) {
      const Shape shape{.ranks = p, .micro_batches = m};
      SCOPED_TRACE(named(shape));
      const Ran got = ran("zb-h2", shape);
      for (const std::vector<Span>& spans : got.timeline.ranks)
        EXPECT_EQ(spans.back().end - spans.front().start, 3.0 * static_cast<double>(m));
      EXPECT_EQ(got.figures.period, 3.0 * static_cast<double>(m));
      EXPECT_NEAR(got.figures.bubble_fraction, 0.0, 1e-12);
      EXPECT_EQ(got.figures.peak_live, std::vector<std::int64_t>(static_cast<std::size_t>(p), 2 * p - 1));
    }
  }
}

// Ranks that wait for nobody between batches start and end one after the other once, however many batches there are.
TEST(ClosedForm, ZeroBubbleH2GoesOnFromBatchToBatch) {
  for (const auto& [p, m] : {std::pair{4, 8}, {4, 12}, {8, 24}}) {
    for (std::int64_t batches : {1, 2, 5}) {
      const Ran got = ran("zb-h2", {.ranks = p, .micro_batches = m, .batches = batches});
      EXPECT_DOUBLE_EQ(got.figures.makespan, 3.0 * m * static_cast<double>(batches) + (p - 1)) << p << " " << m;
      EXPECT_DOUBLE_EQ(got.figures.period, 3.0 * m * static_cast<double>(batches)) << p << " " << m;
      for (const std::int64_t live : got.figures.peak_live) EXPECT_LE(live, 2 * p - 1);
      for (const std::int64_t versions : got.figures.versions) EXPECT_EQ(versions, 1);
    }
  }
}

TEST(ClosedForm, DualPipe) {
  for (const auto& [p, m] : {std::pair{2, 4}, {2, 10}, {4, 8}, {4, 16}, {6, 12}, {8, 20}, {8, 32}, {16, 40}}) {
    const Shape shape{.ranks = p, .micro_batches = m};
    SCOPED_TRACE(named(shape));
    const Ran got = ran("dualpipe", shape);
    const double both = 3.0;
    EXPECT_EQ(got.figures.makespan, 3.0 * m + (p / 2 - 1) * (both + 2.0 - 3.0 * 1.0));
    EXPECT_NEAR(got.figures.bubble_fraction, (p - 2.0) / (3.0 * m + p - 2.0), 1e-12);
    EXPECT_LE(*std::max_element(got.figures.peak_live.begin(), got.figures.peak_live.end()), p + 1);
    // Apart, the two halves of a pair wait less: half the bubble.
    Schedule apart = got.schedule;
    for (std::vector<Item>& items : apart.ranks) {
      for (Item& item : items) item.joined = false;
    }
    EXPECT_EQ(ran(apart, {}).figures.makespan, 3.0 * m + (p / 2 - 1));
  }
}

TEST(ClosedForm, PipeDreamKeepsAVersionForEachMicroBatchInFlight) {
  for (std::int64_t p : {1, 2, 4, 8}) {
    const Shape shape{.ranks = p, .micro_batches = 1, .batches = 4 * p};
    SCOPED_TRACE(named(shape));
    const Ran stashing = ran("pipedream", shape);
    const Ran together = ran("pipedream-vsync", shape);
    for (std::int64_t r = 0; r < p; ++r) {
      EXPECT_EQ(stashing.figures.versions[static_cast<std::size_t>(r)], p - r);
      EXPECT_EQ(together.figures.versions[static_cast<std::size_t>(r)], p);
      EXPECT_EQ(stashing.figures.peak_live[static_cast<std::size_t>(r)], p - r);
    }
    // Staleness: rank r of update t uses version t-(p-1-r), or t-(p-1) on every rank.
    for (const auto& [got, synced] : {std::pair{&stashing, false}, {&together, true}}) {
      for (std::int64_t r = 0; r < p; ++r) {
        for (const Item& item : got->schedule.ranks[static_cast<std::size_t>(r)]) {
          if (item.work == Work::update) continue;
          EXPECT_EQ(item.version, std::max<std::int64_t>(item.micro_batch - (p - 1 - (synced ? 0 : r)), 0)) << short_name(item);
        }
      }
    }
  }
}

TEST(ClosedForm, PipeDreamWithAccumulationNeedsNoMoreVersions) {
  for (std::int64_t p : {2, 4, 8}) {
    for (std::int64_t m : {2, 3, 8, 16}) {
      const Ran got = ran("pipedream", {.ranks = p, .micro_batches = m, .batches = 6});
      for (std::int64_t r = 0; r < p; ++r) EXPECT_LE(got.figures.versions[static_cast<std::size_t>(r)], p - r);
      EXPECT_LE(ran("pipedream-vsync", {.ranks = p, .micro_batches = m, .batches = 6}).figures.versions[0], p);
    }
  }
}

TEST(ClosedForm, TwoBufferedWeights) {
  for (std::int64_t p : {1, 2, 4, 8}) {
    for (std::int64_t m : {p, p + 1, 4 * p}) {
      const Shape shape{.ranks = p, .micro_batches = m, .batches = 5};
      SCOPED_TRACE(named(shape));
      const Ran got = ran("2bw", shape);
      EXPECT_EQ(got.figures.versions, std::vector<std::int64_t>(static_cast<std::size_t>(p), 2));
      for (const std::vector<Item>& items : got.schedule.ranks) {
        for (const Item& item : items) {
          if (item.work == Work::update) continue;
          const std::int64_t k = item.micro_batch + 1;
          EXPECT_EQ(item.version, std::max<std::int64_t>((k - 1) / m - 1, 0));
        }
      }
    }
  }
}

// Once started, a batch costs what its work costs: the pipeline never drains.
TEST(ClosedForm, AsynchronousSchedulesHaveNoSteadyBubble) {
  for (std::string_view name : {"pipedream", "pipedream-vsync", "2bw"}) {
    const Shape shape{.ranks = 4, .micro_batches = 8, .batches = 4};
    Shape longer = shape;
    longer.batches = 7;
    EXPECT_EQ(ran(name, longer).figures.makespan - ran(name, shape).figures.makespan, 3 * 8 * 3.0) << name;
  }
}

// p = 4, m = 5, all pieces of one unit: Varuna's order, and GPipe's with a recompute before each backward but the first.
TEST(ClosedForm, VarunaGainsOnlyWhereRecomputesMayComeEarly) {
  const Shape shape{.ranks = 4, .micro_batches = 5};
  const StageCost unit{1, 1, 0, 1};
  const Schedule order = build("varuna", shape);
  EXPECT_EQ(simulate(order, {.stages = {unit}, .recompute_on_gradient = true}).makespan, 22.0);
  EXPECT_EQ(ran(order, unit).figures.makespan, 19.0);
  const Ran gpipe = ran(with_recompute(build("gpipe", shape)), unit);
  EXPECT_EQ(gpipe.figures.makespan, 20.0);
  EXPECT_EQ(gpipe.figures.peak_live[0], 5);
  EXPECT_EQ(gpipe.figures.peak_full[0], 1);
}

TEST(ClosedForm, MessagesOnTheWayDelayTheCriticalPath) {
  const Schedule schedule = build("naive", {.ranks = 4, .micro_batches = 1});
  const Timeline timeline = simulate(schedule, {.stages = {{2, 3, 1, 2}}, .message = 5.0});
  EXPECT_EQ(timeline.makespan, 4 * 6.0 + 6 * 5.0);
}

}  // namespace
}  // namespace plimsoll::strategy::schedules
