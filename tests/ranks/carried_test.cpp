// Updates that clipping or loss scaling holds back, left to the next step and made there ahead of the weights' first use: every loss, norm
// and weight is that of updates behind the backward pass, and so is every checkpoint.
#include <gtest/gtest.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "lowering/passes/carry_update.h"
#include "ranks/compare.h"
#include "ranks/device_beside.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"
#include "support/refusal.h"
#include "train/stored/snapshot.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::CarryUpdate;

struct Case {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
  double clip = 1.0;
  const char* tiers = "--h";  // of weights, gradients and optimizer state
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  std::int64_t samples = 2;
  const char* schedule = "1f1b";
  std::int64_t chunks = 1;
  strategy::Recompute recompute = strategy::Recompute::none;
  const char* optimizer = "adamw";
  std::int64_t bucket = 20'000;
  std::int64_t prefetch = 1;
  bool sequence = false;
};

// A half of it is on the host, the rest on the device: '2'.
strategy::TierShare share_of(char tier) { return {.host = tier == 'h' ? 1.0 : tier == '2' ? 0.5 : 0.0, .disk = tier == 'd' ? 1.0 : 0.0}; }

Task task_of(const Case& given) {
  Task task{.model = small_model(given.family), .precision = given.precision, .clip = given.clip, .samples = given.samples};
  task.optimizer = given.optimizer;
  task.model.layers = 4;
  if (given.tensor > 1) task.model.kv_heads = 4;
  return task;
}

Layout layout_of(const Case& given, const io::Path& folder) {
  Layout layout{.strategy = {}, .micro = 1};
  strategy::Strategy& strategy = layout.strategy;
  strategy.data = given.data;
  strategy.tensor = given.tensor;
  strategy.pipe = given.pipe;
  strategy.chunks = given.chunks;
  strategy.zero = given.zero;
  strategy.schedule = given.schedule;
  strategy.recompute = given.recompute;
  strategy.bucket = base::Bytes{given.bucket};
  strategy.prefetch = given.prefetch;
  strategy.sequence_parallel = given.sequence;
  strategy.keep_grads = false;
  strategy.offload = {
      .optimizer = share_of(given.tiers[2]), .gradients = share_of(given.tiers[1]), .params = share_of(given.tiers[0]), .activations = {}};
  layout.disk_folder = folder.string();
  return layout;
}

class CarriedRanks : public testing::Test {
 protected:
  tests::TemporaryFolder folder_;
};

class Carried : public CarriedRanks, public testing::WithParamInterface<Case> {};

TEST_P(Carried, IsTheSameBits) {
  Task task = task_of(GetParam());
  Layout layout = layout_of(GetParam(), folder_.path());
  layout.strategy.carry_update = CarryUpdate::never;
  const Outcome behind = train(task, layout);
  layout.strategy.carry_update = CarryUpdate::always;
  const DeviceBeside beside;
  for (const executor::Backend* backend :
       {static_cast<const executor::Backend*>(nullptr), static_cast<const executor::Backend*>(&beside)}) {
    task.backend = backend;
    const Outcome under = train(task, layout);
    expect_same_bits(under, behind);
    EXPECT_EQ(under.sent, under.predicted);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Carried,
    testing::Values(Case{.name = "gpt2", .samples = 1}, Case{.name = "gpt2_micro_bf16", .precision = Precision::bf16},
                    Case{.name = "in_parts", .precision = Precision::bf16, .bucket = 4}, Case{.name = "far_ahead", .prefetch = 9},
                    Case{.name = "not_ahead", .prefetch = 0}, Case{.name = "llama_disk", .family = families::llama(), .tiers = "--d"},
                    Case{.name = "bert_recompute", .family = families::bert(), .recompute = strategy::Recompute::full},
                    Case{.name = "momentum", .optimizer = "momentum"}, Case{.name = "not_clipped", .clip = 0.0},
                    Case{.name = "half", .precision = Precision::bf16, .tiers = "--2"},
                    Case{.name = "gradients_host", .precision = Precision::bf16, .tiers = "-hh", .samples = 3},
                    Case{.name = "gradients_host_state_disk", .tiers = "-hd", .samples = 3},
                    // Gradients that tensor ranks add up in the last micro-batch do not leave with the others.
                    Case{.name = "gradients_that_stay", .tiers = "-hd", .tensor = 2, .samples = 3, .sequence = true},
                    Case{.name = "gradients_that_stay_pipe2", .tiers = "dhd", .tensor = 2, .pipe = 2, .samples = 2, .sequence = true},
                    Case{.name = "weights_host", .tiers = "h-h"}, Case{.name = "all_host", .tiers = "hhh"},
                    Case{.name = "all_host_bf16", .precision = Precision::bf16, .tiers = "hhh"},
                    Case{.name = "all_disk", .precision = Precision::bf16, .tiers = "ddd"}, Case{.name = "data2", .data = 2, .samples = 4},
                    Case{.name = "half_data2_zero3", .tiers = "--2", .data = 2, .zero = 3, .samples = 4},
                    Case{.name = "gradients_data2", .tiers = "-hh", .data = 2}, Case{.name = "params_data2", .tiers = "hhh", .data = 2},
                    Case{.name = "zero1", .precision = Precision::bf16, .data = 2, .zero = 1, .samples = 4},
                    Case{.name = "zero2", .family = families::llama(), .data = 4, .zero = 2, .samples = 8},
                    Case{.name = "zero2_gradients", .tiers = "-hh", .data = 2, .zero = 2, .samples = 4},
                    Case{.name = "zero3", .precision = Precision::bf16, .tiers = "hhh", .data = 2, .zero = 3, .samples = 4},
                    Case{.name = "tensor2", .tensor = 2}, Case{.name = "gradients_tensor2", .tiers = "-hh", .tensor = 2},
                    Case{.name = "pipe2", .precision = Precision::bf16, .pipe = 2, .samples = 4},
                    Case{.name = "pipe2_disk_gpipe", .tiers = "--d", .pipe = 2, .samples = 4, .schedule = "gpipe"},
                    Case{.name = "pipe2_zb", .pipe = 2, .samples = 4, .schedule = "zb-h1"},
                    Case{.name = "pipe2_chunks", .pipe = 2, .samples = 4, .schedule = "interleaved", .chunks = 2},
                    Case{.name = "gradients_pipe2", .tiers = "-hh", .pipe = 2, .samples = 4},
                    Case{.name = "all_pipe2_data2_zero3", .tiers = "hhh", .data = 2, .pipe = 2, .zero = 3, .samples = 8}),
    [](const auto& each) { return each.param.name; });

train::StepResult run_step(train::Session& session, const Task& task, std::uint32_t step) {
  for (std::int32_t index = 0; index < static_cast<std::int32_t>(task.samples); ++index)
    fill(session, "train", index, index, task.model.vocab, step);
  return session.step({.learning_rate = task.learning_rate, .step = step, .valid_targets = valid_targets(task.samples)});
}

// Gradients that are not finite are an update that is skipped, whenever it would have been made; the scale falls in the same steps.
TEST_F(CarriedRanks, SkippedStepsAreSkipped) {
  const Case given{.name = "", .precision = Precision::fp16};
  const Task task = task_of(given);
  const auto steps = [&](CarryUpdate carry) {
    Layout layout = layout_of(given, folder_.path());
    layout.strategy.carry_update = carry;
    train::SessionOptions options = options_for(task, layout);
    options.training.loss_scaling.initial = 16'777'216.0;
    options.training.loss_scaling.hysteresis = 1;
    train::Session session(options);
    std::vector<std::tuple<double, double, float, bool>> results;
    for (std::uint32_t step = 1; step <= 20; ++step) {
      const train::StepResult result = run_step(session, task, step);
      results.emplace_back(result.loss, result.skipped ? 0.0 : result.gradient_norm, result.loss_scale, result.skipped);
    }
    return results;
  };
  const auto expected = steps(CarryUpdate::never);
  const auto skipped = std::count_if(expected.begin(), expected.end(), [](const auto& step) { return std::get<3>(step); });
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 20);
  EXPECT_EQ(steps(CarryUpdate::always), expected);
}

// Whoever looks between steps sees the weights after the step, and looking changes nothing.
TEST_F(CarriedRanks, LookingBetweenStepsSettles) {
  const Case given{.name = "", .precision = Precision::bf16};
  const Task task = task_of(given);
  Layout layout = layout_of(given, folder_.path());
  const auto watched = [&](CarryUpdate carry, bool look) {
    layout.strategy.carry_update = carry;
    train::Session session(options_for(task, layout));
    std::vector<double> seen;
    for (std::uint32_t step = 1; step <= 4; ++step) {
      seen.push_back(run_step(session, task, step).loss);
      if (!look || step % 2 == 0) continue;
      fill(session, "evaluate", 0, 0, task.model.vocab, 0);
      seen.push_back(session.evaluate());
      const std::vector<float> weight = train::read_parameter(session, train::parameters_of(session).front().name);
      seen.insert(seen.end(), weight.begin(), weight.end());
    }
    return seen;
  };
  EXPECT_EQ(watched(CarryUpdate::always, true), watched(CarryUpdate::never, true));
  EXPECT_EQ(watched(CarryUpdate::always, false), watched(CarryUpdate::never, false));
}

// A checkpoint holds no more and nothing else than it would without, and either run goes on from it.
TEST_F(CarriedRanks, CheckpointsAreTheSame) {
  for (const char* tiers : {"--h", "-hh", "hhh", "--d"}) {
    const Case given{.name = "", .precision = Precision::bf16, .tiers = tiers};
    const Task task = task_of(given);
    Layout layout = layout_of(given, folder_.path());
    const auto saved = [&](CarryUpdate carry, std::uint32_t steps, train::Session& session) {
      for (std::uint32_t step = 1; step <= steps; ++step) run_step(session, task, step);
      std::map<std::string, std::vector<std::byte>> tensors;
      for (const checkpoint::TensorSource& source : train::sources_of(session, train::own_pieces(session))) {
        std::vector<std::byte>& bytes = tensors[source.name];
        bytes.assign(source.data.begin(), source.data.end());
        if (!bytes.empty()) continue;
        bytes.resize(static_cast<std::size_t>(source.elsewhere.bytes));
        source.elsewhere.read(0, bytes);
      }
      EXPECT_EQ(session.plan().classes[0].programs.back().name == lowering::kFlush, carry == CarryUpdate::always);
      return tensors;
    };
    layout.strategy.carry_update = CarryUpdate::never;
    train::Session behind(options_for(task, layout));
    layout.strategy.carry_update = CarryUpdate::always;
    train::Session under(options_for(task, layout));
    EXPECT_TRUE(saved(CarryUpdate::never, 3, behind) == saved(CarryUpdate::always, 3, under)) << tiers;
    EXPECT_EQ(run_step(under, task, 4).loss, run_step(behind, task, 4).loss) << tiers;
  }
}

TEST_F(CarriedRanks, IsRefusedWithAReasonElsewhere) {
  const auto refused = [&](const Case& given, std::string_view reason, const std::function<void(strategy::Strategy&)>& change) {
    Layout layout = layout_of(given, folder_.path());
    layout.strategy.carry_update = CarryUpdate::always;
    change(layout.strategy);
    const std::string said = tests::refusal([&] { strategy::require_legal(layout.strategy, 4); }, base::ErrorKind::not_legal);
    EXPECT_NE(said.find(reason), std::string::npos) << said;
  };
  refused({.name = ""}, "nothing to run under", [](strategy::Strategy& strategy) { strategy.offload.optimizer = {}; });
  refused({.name = ""}, "delayed_update", [](strategy::Strategy& strategy) { strategy.delayed_update = true; });
  refused({.name = "", .pipe = 2, .schedule = "2bw"}, "no step ends", [](strategy::Strategy& strategy) { strategy.flush_every = 2; });
  refused({.name = "", .tiers = "--2", .data = 2, .zero = 1}, "gather", [](strategy::Strategy&) {});
}

}  // namespace
}  // namespace plimsoll::ranks
