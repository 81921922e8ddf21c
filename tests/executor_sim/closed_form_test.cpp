// Plans with pieces of unit length and free messages take exactly what the schedules' closed forms say; with real prices no rank's
// work and no lower bound is ever beaten.
#include <gtest/gtest.h>

#include "layouts.h"

namespace plimsoll::executor::sim {
namespace {

struct Units {
  double forward = 1.0;
  double backward = 2.0;
  double weight = 0.0;
};

// Only the layers count, each by its phase.
void set_units(Script& script, const Units& units) {
  for (Routine& routine : script.routines) {
    const bool layer = routine.name.starts_with("blocks.");
    const bool work = !routine.steps.empty() && routine.steps.front().kind == Step::Kind::work;
    for (Step& step : routine.steps) step.seconds = 0.0;
    if (!layer || !work) continue;
    double& seconds = routine.steps.front().seconds;
    if (routine.name.ends_with(".forward")) seconds = units.forward;
    if (routine.name.ends_with(".backward")) seconds = units.backward;
    if (routine.name.ends_with(".backward-weight")) seconds = units.weight;
  }
}

// A block for every stage.
Result pipeline(const std::string& schedule, std::int64_t ranks, std::int32_t micro_batches, std::int64_t chunks, const Units& units,
                std::int64_t batches = 1) {
  Layout layout{.layers = ranks * chunks, .micro_batches = micro_batches};
  if (batches > 1) {
    layout.strategy.flush_every = batches;
    layout.clip = 0.0;
    layout.tied = false;
  }
  layout.strategy.pipe = ranks;
  layout.strategy.chunks = chunks;
  layout.strategy.schedule = schedule;
  const plan::Plan plan = whole_plan(layout);
  const cluster::Cluster cluster = cluster::preset("dgx-h100:8");
  Script script = priced(plan, "train", cluster);
  set_units(script, units);
  return simulate(script, cluster, {});
}

TEST(ClosedForm, OfGpipeAndOneForwardOneBackward) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const auto& [p, m] : {std::pair{2, 4}, {4, 4}, {4, 8}, {4, 16}, {8, 16}}) {
      const Result result = pipeline(schedule, p, m, 1, {});
      EXPECT_DOUBLE_EQ(result.seconds, (m + p - 1) * 3.0) << schedule << " " << p << " " << m;
      EXPECT_NEAR(result.bubble_fraction(), (p - 1.0) / (m + p - 1.0), 1e-9) << schedule << " " << p << " " << m;
    }
  }
}

TEST(ClosedForm, OfInterleaving) {
  for (const auto& [p, m, v] : {std::tuple{4, 4, 2}, {4, 8, 2}, {2, 8, 3}}) {
    const Result result = pipeline("interleaved", p, m, v, {});
    EXPECT_DOUBLE_EQ(result.seconds, m * v * 3.0 + (p - 1) * 3.0) << p << " " << m << " " << v;
  }
}

TEST(ClosedForm, OfZeroBubble) {
  for (const auto& [p, m] : {std::pair{4, 4}, {4, 8}}) {
    const Result result = pipeline("zb-h1", p, m, 1, {.forward = 1.0, .backward = 1.0, .weight = 1.0});
    EXPECT_DOUBLE_EQ(result.seconds, 3.0 * m + (p - 1)) << p << " " << m;
  }
}

// Steps of ZB-H2 that no barrier parts: each rank is idle before its first and behind its last, never between.
TEST(ClosedForm, OfZeroBubbleOverSeveralSteps) {
  for (const auto& [p, m] : {std::pair{4, 8}, {4, 12}, {8, 24}}) {
    for (const std::int64_t steps : {1, 2, 4}) {
      const Result result = pipeline("zb-h2", p, m, 1, {.forward = 1.0, .backward = 1.0, .weight = 1.0}, steps);
      EXPECT_DOUBLE_EQ(result.seconds, 3.0 * m * static_cast<double>(steps) + (p - 1)) << p << " " << m << " " << steps;
    }
  }
}

// A backward pass of ten seconds beside a reduction that takes longer: it has half of the device's units, and takes twenty. What the
// reduction takes beyond that is not hidden, and the same for both.
TEST(ClosedForm, OfComputingBesideACollective) {
  Layout layout{.layers = 1, .micro_batches = 1};
  layout.strategy.data = 2;
  layout.strategy.bucket = base::Bytes{1};
  const plan::Plan plan = whole_plan(layout);
  const auto computing = [&](bool slowed) {
    cluster::Cluster cluster = cluster::preset("dgx-h100");
    cluster.device.collective_units = slowed ? cluster.device.units / 2 : 0;
    Script script = priced(plan, "train", cluster);
    for (Routine& routine : script.routines) {
      for (Step& step : routine.steps) {
        const bool reduces = step.kind == Step::Kind::meet && routine.name.starts_with("head");
        step.seconds = reduces ? 100.0 : routine.name == "blocks.0.backward" && step.kind == Step::Kind::work ? 10.0 : 0.0;
      }
    }
    return simulate(script, cluster, {}).times.front().computing;
  };
  const double alone = computing(false);
  EXPECT_GE(alone, 10.0);
  EXPECT_DOUBLE_EQ(computing(true), 2.0 * alone);
}

TEST(LowerBounds, AreNeverBeaten) {
  const cluster::Cluster cluster = cluster::preset("dgx-a100-80g:2");
  for (const std::int64_t pipe : {1, 2, 4}) {
    for (const std::int64_t tensor : {1, 2}) {
      for (const std::int64_t zero : {0, 1, 2, 3}) {
        Layout layout{.layers = 4, .micro_batches = 4};
        layout.strategy.pipe = pipe;
        layout.strategy.tensor = tensor;
        layout.strategy.data = 2;
        layout.strategy.zero = pipe > 1 ? std::min<std::int64_t>(zero, 1) : zero;
        const plan::Plan plan = whole_plan(layout);
        const Script script = priced(plan, "train", cluster);
        const Result result = simulate(script, cluster, {});
        double expected_bytes = 0.0;
        for (std::size_t part = 0; part < script.parts.size(); ++part) {
          for (const Lane& lane : script.parts[part].lanes) {
            double alone = 0.0;
            for (const Turn& turn : lane.turns) {
              for (const Step& step : script.routines[turn.routine].steps) {
                if (step.kind != Step::Kind::receive) alone += step.seconds;
                for (const double bytes : step.bytes)
                  expected_bytes += bytes * static_cast<double>(script.parts[part].rank_class->ranks.size());
              }
            }
            EXPECT_GE(result.seconds, alone * (1.0 - 1e-12));
          }
        }
        double bytes = 0.0;
        for (const double each : result.bytes) bytes += each;
        EXPECT_NEAR(bytes, expected_bytes, 1e-6 * expected_bytes);
        for (const RankTimes& times : result.times)
          EXPECT_NEAR(times.computing + times.exposed + times.waiting, result.seconds, 1e-9 * result.seconds);
      }
    }
  }
}

// What is counted is the closed form 72 B s l h^2 (1 + s/6h + V/12lh) of a step, and with recompute a third more of the layers.
TEST(Flops, AreTheModels) {
  Layout layout{.layers = 6, .width = 128, .vocab = 512, .sequence = 64, .micro = 2, .micro_batches = 3};
  for (const bool again : {false, true}) {
    layout.strategy.recompute = again ? strategy::Recompute::full : strategy::Recompute::none;
    const Result result = simulate(whole_plan(layout), cluster::preset("dgx-h100"), {});
    const double tokens = 2.0 * 64 * 3;
    const double layers = 72.0 * tokens * 6 * 128 * 128 * (1.0 + 64.0 / (6 * 128));
    const double head = 6.0 * tokens * 128 * 512;
    EXPECT_NEAR(result.model_flops, layers + head, 1e-9 * layers);
    EXPECT_NEAR(result.hardware_flops, (again ? 4.0 / 3.0 : 1.0) * layers + head, 1e-9 * layers);
  }
}

}  // namespace
}  // namespace plimsoll::executor::sim
