// What a strategy can ask for beside plain data, tensor and pipeline ranks, by ranks that share a GPU: what the processor makes of the same
// strategy, and where the mathematics is that of one rank, what one rank computes on the GPU.
#include <gtest/gtest.h>

#include "executor/cuda/load/cuda_backend.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

struct Case {
  std::string name;
  std::function<void(strategy::Strategy&)> change;
  std::int64_t micro = 1;
  bool tied = true;
  bool asynchronous = false;  // weights of other steps: no rank alone computes so
  bool clips = true;          // not where no rank waits for all gradients
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

std::function<void(strategy::Strategy&)> pipeline(const char* schedule, std::int64_t pipe, std::int64_t chunks = 1,
                                                  std::int64_t round = 1) {
  return [=](strategy::Strategy& strategy) {
    strategy.schedule = schedule;
    strategy.pipe = pipe;
    strategy.chunks = chunks;
    strategy.flush_every = round;
  };
}

std::function<void(strategy::Strategy&)> own_stages(std::vector<strategy::Stage> stages, std::int64_t zero) {
  return [=](strategy::Strategy& strategy) {
    strategy.pipe = static_cast<std::int64_t>(stages.size());
    strategy.partition = strategy::StagePartition::listed;
    strategy.stages = stages;
    strategy.zero = zero;
  };
}

class StrategyOnGpu : public testing::TestWithParam<std::tuple<Case, Precision>> {
 protected:
  const Case& each() const { return std::get<Case>(GetParam()); }
  Precision precision() const { return std::get<Precision>(GetParam()); }
  Task task(bool gpu) const {
    Task task{
        .model = small_model(families::gpt2()), .precision = precision(), .steps = 4, .backend = gpu ? &executor::cuda_backend() : nullptr};
    task.model.layers = 4;
    task.model.tied = each().tied;
    if (each().asynchronous || !each().clips) task.clip = 0.0;
    return task;
  }
  Layout layout() const {
    Layout layout{.strategy = {}, .micro = each().micro};
    layout.strategy.bucket = base::Bytes{20'000};
    each().change(layout.strategy);
    return layout;
  }
};

TEST_P(StrategyOnGpu, IsTheProcessors) {
  const Outcome gpu = train(task(true), layout());
  expect_close(gpu, train(task(false), layout()), tolerance(precision()));
  EXPECT_EQ(train(task(true), layout()).losses, gpu.losses) << "other bits in a second run";
}

TEST_P(StrategyOnGpu, IsOneRank) {
  const Outcome found = train(task(true), layout());
  const Outcome one = train(task(true), {.strategy = {}, .micro = 2});
  if (!each().asynchronous) return expect_close(found, one, tolerance(precision()));
  // Later steps have gradients of older weights.
  EXPECT_NEAR(found.losses.front(), one.losses.front(), 2e-2 * one.losses.front());
}

INSTANTIATE_TEST_SUITE_P(
    All, StrategyOnGpu,
    testing::Combine(
        testing::Values(
            Case{"sequence_parallel", [](strategy::Strategy& s) { s.tensor = 2, s.sequence_parallel = true; }, 4},
            Case{"sequence_parallel_and_data",
                 [](strategy::Strategy& s) { s.tensor = 2, s.data = 2, s.zero = 2, s.sequence_parallel = true; }, 2},
            Case{"sequence_parallel_and_pipe",
                 [](strategy::Strategy& s) { s.tensor = 2, s.pipe = 2, s.sequence_parallel = true, s.scatter_boundaries = true; }, 2},
            Case{"tensor_and_pipe", [](strategy::Strategy& s) { s.tensor = 2, s.pipe = 2; }, 2},
            Case{"interleaved", pipeline("interleaved", 2, 2)}, Case{"varuna", pipeline("varuna", 2)},
            Case{"varuna_of_4", pipeline("varuna", 4)}, Case{"zb_h2", pipeline("zb-h2", 2, 1, 2), 1, true, false, false},
            Case{"pipedream", pipeline("pipedream", 2, 1, 4), 1, false, true},
            Case{"pipedream_vsync", pipeline("pipedream-vsync", 2, 1, 4), 1, true, true},
            Case{"twice_buffered", pipeline("2bw", 2, 1, 4), 1, true, true},
            Case{"tiles", [](strategy::Strategy& s) { s.tile = base::Bytes{8'192}; }, 2, false},
            Case{"tiles_and_data", [](strategy::Strategy& s) { s.tile = base::Bytes{8'192}, s.data = 2, s.zero = 2; }, 2, false},
            Case{"own_data_degrees", own_stages({{.blocks = 2, .data = 2}, {.blocks = 2}}, 1), 1, false},
            Case{"own_tensor_degrees", own_stages({{.blocks = 2}, {.blocks = 2, .tensor = 2}}, 0), 1, false}),
        testing::Values(Precision::f32, Precision::bf16)),
    [](const auto& given) {
      return std::get<Case>(given.param).name + (std::get<Precision>(given.param) == Precision::f32 ? "_f32" : "_bf16");
    });

// Every bit is that of the run that keeps everything, in each of its forms.
TEST(OptimalRecompute, IsTheSameBits) {
  Task task{.model = small_model(families::gpt2()), .steps = 4, .backend = &executor::cuda_backend()};
  task.model.layers = 4;
  task.model.dropout = 0.1;
  for (const std::int64_t data : {1, 2}) {
    Layout layout{.strategy = {}, .micro = 2};
    layout.strategy.data = data;
    layout.strategy.zero = data > 1 ? 2 : 0;
    const Outcome kept = train(task, layout);
    layout.strategy.recompute = strategy::Recompute::optimal;
    for (const double share : {0.5, 0.7}) {
      SCOPED_TRACE(fmt::format("{} data ranks, {} of the memory", data, share));
      layout.strategy.recompute_memory = share;
      const Outcome again = train(task, layout);
      expect_same_bits(again, kept);
      EXPECT_LT(again.activations, kept.activations);
    }
  }
}

}  // namespace
}  // namespace plimsoll::ranks
