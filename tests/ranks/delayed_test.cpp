// Updates that are a step late against their definition: step k computes with the weights that the gradients of steps 1 .. k - 2 made,
// and applies the gradient of step k - 1 as that step would have, with its learning rate, clip factor and count. The reference computes
// each gradient by a rank that keeps everything, and applies it with the processor's update kernel, in the order of the definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "executor/cpu/cpu_backend.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "kernels/cpu/table.h"
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
using Values = std::map<std::string, std::vector<float>>;

float rate_of(std::uint32_t step) { return 0.01f / static_cast<float>(step); }

double run_step(train::Session& session, const Task& task, std::int64_t micro, std::uint32_t step) {
  const auto micro_batches = static_cast<std::int32_t>(task.samples / micro);
  for (std::int32_t index = 0; index < micro_batches; ++index) fill(session, "train", index, index * micro, task.model.vocab, step);
  return session.step({.learning_rate = rate_of(step), .step = step, .valid_targets = valid_targets(task.samples)}).loss;
}

// The optimizer's state of the reference, and one update of it.
class Optimizer {
 public:
  Optimizer(const train::Session& session, const std::string& name) {
    const graph::Graph& graph = session.graph();
    for (const graph::Parameter& parameter : graph.parameters) {
      if (parameter.name != name) continue;
      for (const graph::Node& node : graph.nodes) {
        if (node.phase != graph::Phase::update || node.inputs[2] != parameter.master) continue;
        op_ = std::get<ops::Update>(node.op);
        type_ = graph.values[parameter.master].type;
      }
    }
    op_.copy = false;
    for (std::vector<float>& state : states_) state.assign(static_cast<std::size_t>(type_.shape.elements()), 0.0f);
  }

  void apply(ops::StepScalars scalars, std::vector<float> gradient, std::vector<float>& weight) {
    const ops::Op op = op_;
    const std::vector<base::TensorType> inputs{ops::step_scalars_type(), type_, type_, type_, type_};
    const std::vector<base::TensorType> outputs{type_, type_, type_};
    const std::string name = executor::cpu_backend().choose({.op = op, .inputs = inputs, .outputs = outputs}).name;
    const std::vector<kernels::cpu::Tensor> written{{weight.data(), type_}, {states_[0].data(), type_}, {states_[1].data(), type_}};
    std::vector<kernels::cpu::Tensor> read{{&scalars, inputs[0]}, {gradient.data(), type_}};
    read.insert(read.end(), written.begin(), written.end());
    kernels::cpu::kernel_named(name).run({.op = op, .inputs = read, .outputs = written});
  }

 private:
  ops::Update op_;
  base::TensorType type_;
  std::array<std::vector<float>, 2> states_;
};

Outcome reference(Task task, std::int64_t micro) {
  task.gradients = true;
  train::Session session(options_for(task, {.strategy = {}, .micro = micro}));
  Outcome outcome;
  std::map<std::string, Optimizer> optimizers;
  for (const train::ParameterInfo& info : train::parameters_of(session)) {
    outcome.parameters[info.name] = train::read_parameter(session, info.name);
    optimizers.emplace(info.name, Optimizer(session, info.name));
  }
  Values waiting;
  ops::StepScalars applied_with;
  for (std::uint32_t step = 1; step <= static_cast<std::uint32_t>(task.steps); ++step) {
    train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> to) {
      std::copy_n(outcome.parameters.at(info.name).begin() + row * (info.shape.elements() / info.shape[0]), to.size(), to.begin());
    });
    outcome.losses.push_back(run_step(session, task, micro, step));
    for (auto& [name, gradient] : waiting) optimizers.at(name).apply(applied_with, gradient, outcome.parameters.at(name));
    applied_with = session.scalars();
    --applied_with.updates;  // counted when the step ended
    for (const auto& [name, values] : outcome.parameters) waiting[name] = train::read_gradient(session, name);
  }
  return outcome;
}

struct Case {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
  double clip = 1.0;
  const char* tiers = "-h";  // of weights and optimizer state
  std::int64_t micro = 2;
  strategy::Recompute recompute = strategy::Recompute::none;
};

strategy::TierShare share_of(char tier) {
  return tier == 'h' ? strategy::TierShare{.host = 1.0} : tier == 'd' ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{};
}

Layout layout_of(const Case& given, const io::Path& folder) {
  Layout layout{.strategy = {}, .micro = given.micro};
  layout.strategy.recompute = given.recompute;
  layout.strategy.bucket = base::Bytes{20'000};
  layout.strategy.prefetch = 1;
  layout.strategy.delayed_update = true;
  layout.strategy.offload = {.optimizer = share_of(given.tiers[1]), .gradients = {}, .params = share_of(given.tiers[0]), .activations = {}};
  layout.disk_folder = folder.string();
  return layout;
}

Task task_of(const Case& given) {
  Task task{.model = small_model(given.family), .precision = given.precision, .clip = given.clip, .samples = 2, .steps = 4};
  task.model.layers = 3;
  return task;
}

class DelayedRanks : public testing::Test {
 protected:
  tests::TemporaryFolder folder_;
};

class Delayed : public DelayedRanks, public testing::WithParamInterface<Case> {};

TEST_P(Delayed, IsItsDefinition) {
  const Case& given = GetParam();
  Task task = task_of(given);
  const Outcome expected = reference(task, given.micro);
  const DeviceBeside beside;
  for (const executor::Backend* backend :
       {static_cast<const executor::Backend*>(nullptr), static_cast<const executor::Backend*>(&beside)}) {
    task.backend = backend;
    train::Session session(options_for(task, layout_of(given, folder_.path())));
    std::vector<double> losses;
    for (std::uint32_t step = 1; step <= 4; ++step) losses.push_back(run_step(session, task, given.micro, step));
    EXPECT_EQ(losses, expected.losses);
    for (const auto& [name, values] : expected.parameters) EXPECT_EQ(train::read_parameter(session, name), values) << name;
  }
}

// What waits is part of a checkpoint: gradients, and the scalars that they are to be applied with.
TEST_P(Delayed, GoesOnFromACheckpoint) {
  const Case& given = GetParam();
  const Task task = task_of(given);
  const Outcome expected = reference(task, given.micro);
  io::PosixFileSystem files;
  const io::Path path = folder_.path() / "checkpoints";
  std::filesystem::create_directories(path.string());
  const checkpoint::SaveRequest request{.identity = {.run = "delayed", .config = "0"}, .step = 2};
  {
    train::Session session(options_for(task, layout_of(given, folder_.path())));
    for (std::uint32_t step = 1; step <= 2; ++step) run_step(session, task, given.micro, step);
    checkpoint::begin(files, path, 2);
    const std::vector<checkpoint::Part> parts{
        checkpoint::write_part(files, path, request, 0, train::sources_of(session, train::own_pieces(session)))};
    checkpoint::commit(files, path, request, parts);
  }
  train::Session session(options_for(task, layout_of(given, folder_.path())));
  checkpoint::load(files, checkpoint::open(files, path / "step-00000002"), train::targets_of(session, train::held_pieces(session)));
  session.refresh_weights();
  std::vector<double> losses;
  for (std::uint32_t step = 3; step <= 4; ++step) losses.push_back(run_step(session, task, given.micro, step));
  EXPECT_EQ(losses, std::vector<double>(expected.losses.begin() + 2, expected.losses.end()));
  for (const auto& [name, values] : expected.parameters) EXPECT_EQ(train::read_parameter(session, name), values) << name;
}

INSTANTIATE_TEST_SUITE_P(Cases, Delayed,
                         testing::Values(Case{.name = "gpt2"}, Case{.name = "gpt2_micro_bf16", .precision = Precision::bf16, .micro = 1},
                                         Case{.name = "llama_disk", .family = families::llama(), .tiers = "-d"},
                                         Case{.name = "not_clipped", .clip = 0.0}, Case{.name = "weights_host", .tiers = "hh"},
                                         Case{.name = "weights_disk_bf16", .precision = Precision::bf16, .tiers = "dd"},
                                         Case{
                                             .name = "bert_recompute", .family = families::bert(), .recompute = strategy::Recompute::full}),
                         [](const auto& each) { return each.param.name; });

// Ranks that share the work do what one does, to rounding; those that share out state do it to the bit.
TEST_F(DelayedRanks, ComposesWithRanks) {
  const Case given{.name = "", .precision = Precision::f32, .micro = 1};
  Task task = task_of(given);
  task.samples = 4;
  Layout layout = layout_of(given, folder_.path());
  const Outcome alone = train(task, layout);
  layout.strategy.data = 2;
  const Outcome shared = train(task, layout);
  expect_close(shared, alone, tolerance(task.precision));
  for (const std::int64_t zero : {1, 2, 3}) {
    layout.strategy.zero = zero;
    const Outcome split = train(task, layout);
    expect_same_bits(split, shared);
    EXPECT_EQ(split.sent, split.predicted);
  }
  layout.strategy.tensor = 2;
  task.model.kv_heads = 4;
  expect_close(train(task, layout), alone, tolerance(task.precision));
}

// Stages of a pipeline apply what waits under their own passes, each when it has done with the weights; the gradient is a step's, whatever
// the order of its micro-batches.
TEST_F(DelayedRanks, ComposesWithPipelines) {
  struct Pipeline {
    const char* schedule;
    std::int64_t chunks = 1;
    std::int64_t data = 1;
    std::int64_t zero = 0;
    const char* tiers = "-h";
    Precision precision = Precision::f32;
  };
  const DeviceBeside beside;
  for (const Pipeline& pipeline :
       {Pipeline{"1f1b"}, Pipeline{"1f1b", 1, 1, 0, "-d"}, Pipeline{"1f1b", 1, 1, 0, "hh", Precision::bf16}, Pipeline{"zb-h1"},
        Pipeline{"interleaved", 2}, Pipeline{"1f1b", 1, 2, 1}, Pipeline{"1f1b", 1, 2, 3, "-h", Precision::bf16}}) {
    SCOPED_TRACE(fmt::format("{} of {} chunks, data {}, zero {}, {}", pipeline.schedule, pipeline.chunks, pipeline.data, pipeline.zero,
                             pipeline.tiers));
    const Case given{.name = "", .precision = pipeline.precision, .tiers = pipeline.tiers, .micro = 1};
    Task task = task_of(given);
    task.model.layers = 4;
    task.model.tied = false;  // a table on two stages is summed in another order
    task.samples = 4 * pipeline.data;
    Layout layout = layout_of(given, folder_.path());
    layout.strategy.data = pipeline.data;
    layout.strategy.zero = pipeline.zero;
    const Outcome flat = train(task, layout);
    layout.strategy.pipe = 2;
    layout.strategy.chunks = pipeline.chunks;
    layout.strategy.schedule = pipeline.schedule;
    const Outcome staged = train(task, layout);
    expect_same_bits(staged, flat);
    EXPECT_EQ(staged.sent, staged.predicted);
    task.backend = &beside;
    expect_same_bits(train(task, layout), flat);
  }
}

TEST_F(DelayedRanks, IsRefusedWithAReasonElsewhere) {
  Layout layout = layout_of({.name = ""}, folder_.path());
  layout.strategy.offload.optimizer = {};
  EXPECT_NE(tests::refusal([&] { strategy::require_legal(layout.strategy, 4); }, base::ErrorKind::not_legal).find("nothing to run under"),
            std::string::npos);
  layout = layout_of({.name = ""}, folder_.path());
  layout.strategy.pipe = 2;
  layout.strategy.schedule = "2bw";
  layout.strategy.flush_every = 2;
  EXPECT_NE(tests::refusal([&] { strategy::require_legal(layout.strategy, 4); }, base::ErrorKind::not_legal).find("1f1b"),
            std::string::npos);
}

}  // namespace
}  // namespace plimsoll::ranks
