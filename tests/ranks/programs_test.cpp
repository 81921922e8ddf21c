// Programs beside the training step: one that runs every third step and keeps what it makes, and those of several models on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <mutex>

#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "executor/cpu/cpu_backend.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "plan/file.h"
#include "plan/print.h"
#include "plan/programs.h"
#include "plan/verify.h"
#include "ranks/layouts.h"
#include "support/refusal.h"
#include "train/stored/kept_states.h"
#include "train/stored/snapshot.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

using When = plan::Cadence::When;
using Values = std::vector<float>;

// Of every weight, a mean over the times when the program runs: a state NAME.suffix that is kept with the model.
graph::Graph average_weights(const graph::Graph& trained, const std::string& suffix, double momentum) {
  graph::Graph graph;
  for (const graph::Block& block : trained.blocks) graph.blocks.add(block);
  for (const graph::Parameter& parameter : trained.parameters) {
    const graph::Value& value = trained.values[parameter.weight];
    const graph::ValueId weight = graph.add_value(value);
    graph.parameters.push_back({.name = parameter.name, .weight = weight, .master = weight, .frozen = parameter.frozen});
    const std::int64_t elements = value.type.shape.elements();
    const graph::ValueId row =
        graph.add_node(ops::View{.shape = {1, elements}}, {weight}, value.block, graph::Phase::forward, parameter.name + ".row")[0];
    const graph::ValueId mean = graph.add_value({.name = parameter.name + suffix,
                                                 .type = {base::DType::f32, base::Shape{elements}},
                                                 .role = graph::Role::state,
                                                 .block = value.block,
                                                 .state = {.cut = ops::State::Cut::own, .written = ops::State::Written::program}});
    graph.add_node(ops::RunningMean{.momentum = momentum}, {row, mean}, value.block, graph::Phase::forward,
                   parameter.name + suffix + ".new");
  }
  return graph;
}

train::AddedProgram averaging(const std::string& name, const plan::Cadence& cadence, double momentum) {
  return {.name = name, .cadence = cadence, .write = [=](const graph::Graph& trained) {
            return average_weights(trained, "." + name, momentum);
          }};
}

Task task_of(model::Family family = families::gpt2()) { return {.model = small_model(family), .samples = 4}; }

double step(train::Session& session, const Task& task, const Layout& layout, std::uint32_t number) {
  const plan::Mesh& mesh = session.plan().mesh;
  const std::int64_t own = task.samples / mesh.extent(ops::Axis::data);
  const std::int64_t first = mesh.place(ops::Axis::data, session.rank()) * own;
  for (std::int64_t sample = 0; sample < own; sample += layout.micro)
    fill(session, "train", static_cast<std::int32_t>(sample / layout.micro), first + sample, task.model.vocab, number);
  return session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(task.samples)}).loss;
}

Values state(train::Session& session, const std::string& name) {
  const auto view = session.buffers().view<float>(name, plan::Access::read);
  return {view.begin(), view.begin() + session.buffers().buffer(name).type.shape.elements()};
}

TEST(Programs, OneRunsEveryThirdStepAndOneBeforeTheFirst) {
  constexpr double kMomentum = 0.25;
  const std::string weight = "blocks.1.ffn.up.weight";
  const Task task = task_of();
  struct Place {
    std::int64_t data;
    std::int64_t zero;
    bool host;  // updates are left to the next step
  };
  for (const Place& place : {Place{1, 0, false}, Place{2, 1, false}, Place{2, 3, false}, Place{1, 0, true}}) {
    Layout layout{.strategy = {}, .micro = 2};
    layout.strategy.data = place.data;
    layout.strategy.zero = place.zero;
    if (place.host) layout.strategy.offload.optimizer = {.host = 1.0};
    train::SessionOptions options = options_for(task, layout);
    options.programs = {averaging("average", {.when = When::after, .every = 3}, kMomentum), averaging("begun", {.when = When::first}, 1.0)};
    const tests::TemporaryFolder folder;
    io::PosixFileSystem files;
    const checkpoint::SaveRequest request{.identity = {.run = "programs", .config = "0"}, .step = 4};
    checkpoint::begin(files, folder.path(), request.step);
    std::vector<checkpoint::Part> parts(static_cast<std::size_t>(place.data));
    Values expected_at_7;
    Values begun;
    std::mutex mutex;
    for_each_rank(options, [&](train::Session& session) {
      const Values first = train::read_parameter(session, weight);
      Values expected(first.size(), 0.0f);
      for (std::uint32_t number = 1; number <= 7; ++number) {
        step(session, task, layout, number);
        const Values now = train::read_parameter(session, weight);
        for (std::size_t index = 0; number % 3 == 0 && index < now.size(); ++index)
          expected[index] = static_cast<float>((1.0 - kMomentum) * expected[index] + kMomentum * static_cast<double>(now[index]));
        EXPECT_EQ(state(session, weight + ".average"), expected) << "step " << number;
        EXPECT_EQ(state(session, weight + ".begun"), first);
        if (number == 4) {
          io::PosixFileSystem own;
          parts[static_cast<std::size_t>(session.rank())] =
              checkpoint::write_part(own, folder.path(), request, session.rank(), train::sources_of(session, train::own_pieces(session)));
        }
      }
      const std::lock_guard lock(mutex);
      expected_at_7 = expected;
      begun = first;
    });
    checkpoint::commit(files, folder.path(), request, parts);
    // What it keeps is in the checkpoint, and what runs before the first step does not run when a run goes on.
    for_each_rank(options, [&](train::Session& session) {
      io::PosixFileSystem own;
      train::load_held(own, checkpoint::open(own, folder.path() / "step-00000004"), session);
      session.refresh_weights();
      for (std::uint32_t number = 5; number <= 7; ++number) step(session, task, layout, number);
      EXPECT_EQ(state(session, weight + ".average"), expected_at_7);
      EXPECT_EQ(state(session, weight + ".begun"), begun);
    });
  }
}

TEST(Programs, AreAskedForByName) {
  const Task task = task_of();
  const Layout layout{.strategy = {}, .micro = 2};
  train::SessionOptions options = options_for(task, layout);
  options.programs = {averaging("kept", {}, 1.0)};
  train::Session session(options);
  step(session, task, layout, 1);
  EXPECT_EQ(state(session, "embed.tokens.kept")[0], 0.0f);
  session.run("kept");
  EXPECT_EQ(state(session, "embed.tokens.kept"), train::read_parameter(session, "embed.tokens"));
}

TEST(Programs, SayInThePlanWhenTheyRun) {
  train::SessionOptions options = options_for(task_of(), {.strategy = {}, .micro = 2});
  options.programs = {averaging("average", {.when = When::after, .every = 3}, 0.5)};
  const plan::Plan plan = train::plan_session(options);
  EXPECT_EQ(plan::plan_from_json(plan::to_json(plan)), plan);
  EXPECT_NE(plan::to_string(plan).find("program average of 1 micro-batch, after every 3 steps"), std::string::npos);
}

// Of a plan whose programs say what they read and write: those that must run with one follow from that.
TEST(Programs, RunAheadOfWhoeverReadsWhatTheyWrite) {
  using testing::ElementsAre;
  using testing::IsEmpty;
  Layout carried{.strategy = {}, .micro = 2};
  carried.strategy.offload.optimizer = {.host = 1.0};
  carried.strategy.carry_update = strategy::CarryUpdate::always;
  train::SessionOptions options = options_for(task_of(), carried);
  options.evaluate = true;
  options.programs = {averaging("average", {.when = When::after}, 0.5)};
  const plan::Plan waits = train::plan_session(options);
  EXPECT_THAT(plan::around(waits, "train").ahead, IsEmpty());  // it makes the update that waits itself
  EXPECT_THAT(plan::around(waits, "evaluate").ahead, ElementsAre("flush"));
  EXPECT_THAT(plan::around(waits, "average").ahead, ElementsAre("flush"));
  EXPECT_THAT(plan::around(waits, "flush").ahead, IsEmpty());

  Layout rows{.strategy = {}, .micro = 2};
  rows.strategy.embedding_rows = strategy::EmbeddingRows::disk;
  Task untied = task_of();
  untied.model.tied = false;
  options = options_for(untied, rows);
  options.evaluate = true;
  const plan::Plan on_disk = train::plan_session(options);
  EXPECT_THAT(plan::around(on_disk, "train").ahead, ElementsAre("fetch_rows"));
  EXPECT_THAT(plan::around(on_disk, "train").behind, ElementsAre("store_rows"));
  EXPECT_THAT(plan::around(on_disk, "evaluate").ahead, ElementsAre("fetch_rows"));
  EXPECT_THAT(plan::around(on_disk, "evaluate").behind, IsEmpty());  // it changes none
  EXPECT_EQ(plan::plan_from_json(plan::to_json(on_disk)), on_disk);
}

TEST(Programs, DoWhatTheySay) {
  train::SessionOptions options = options_for(task_of(), {.strategy = {}, .micro = 2});
  options.programs = {averaging("average", {.when = When::after}, 0.5)};
  const plan::Plan plan = train::plan_session(options);
  ASSERT_TRUE(plan::problems(plan).empty());
  const plan::RankClass& rank_class = plan.classes[0];
  const plan::Touches& said = *plan::find_program(rank_class, "average")->touches;
  const auto names = [&](const std::vector<plan::BufferId>& ids) {
    std::vector<std::string> found;
    for (const plan::BufferId id : ids) found.push_back(rank_class.buffers[id].name);
    return found;
  };
  EXPECT_THAT(names(said.reads), testing::IsSupersetOf({"embed.tokens", "embed.tokens.average"}));
  EXPECT_THAT(names(said.writes), testing::Each(testing::EndsWith(".average")));
  const auto problem_after = [&](const auto& change) {
    plan::Plan changed = plan;
    change(*changed.classes[0].programs.back().touches);
    const std::vector<std::string> found = plan::problems(changed);
    EXPECT_THROW(plan::plan_from_json(plan::to_json(changed)), base::Error);
    return found.size() == 1 ? found[0] : fmt::format("{} problems", found.size());
  };
  EXPECT_EQ(problem_after([&](plan::Touches& touches) { touches.writes.insert(touches.writes.begin(), said.reads.front()); }),
            fmt::format("average says that it writes {}, which it does not", names(said.reads).front()));
  EXPECT_EQ(problem_after([](plan::Touches& touches) { touches.reads.erase(touches.reads.begin()); }),
            fmt::format("average reads {}, which it does not say", names(said.reads).front()));
  EXPECT_EQ(problem_after([](plan::Touches& touches) { touches.reads.push_back({100'000}); }),
            "average says that it reads buffer 100000, which there is not");
}

// The last place of a pipeline has a program that the first does not have.
TEST(Programs, AreThoseOfTheRanksRole) {
  const Task task = task_of();
  Layout layout{.strategy = {}, .micro = 1};
  layout.strategy.pipe = 2;
  train::SessionOptions options = options_for(task, layout);
  options.programs = {averaging("average", {.when = When::after, .every = 2}, 1.0)};
  options.programs[0].role = "back";
  options.role_of = [](const plan::Mesh& mesh, std::int32_t rank) { return mesh.place(ops::Axis::pipe, rank) == 0 ? "front" : "back"; };
  const plan::Plan plan = train::plan_session(options);
  EXPECT_EQ(plan::plan_from_json(plan::to_json(plan)), plan);
  ASSERT_EQ(plan.classes.size(), 2u);
  EXPECT_EQ(plan.classes[0].role, "front");
  EXPECT_EQ(plan.classes[1].role, "back");
  for_each_rank(options, [&](train::Session& session) {
    const bool back = session.rank() == 1;
    EXPECT_EQ(plan::find_program(plan::class_of(session.plan(), session.rank()), "average") != nullptr, back);
    for (std::uint32_t number = 1; number <= 2; ++number) {
      for (std::int32_t sample = 0; sample < task.samples; ++sample) fill(session, "train", sample, sample, task.model.vocab, number);
      session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(task.samples)});
    }
    const std::string weight = "blocks.1.ffn.up.weight";
    EXPECT_EQ(session.buffers().has(weight + ".average"), back);
    const Values now = train::read_parameter(session, weight);  // all ranks together
    if (back) {
      EXPECT_EQ(state(session, weight + ".average"), now);
    }
    session.run("average");  // who does not have it does nothing
  });
  // Of one role all have the same programs.
  plan::Plan mixed = plan;
  mixed.classes[0].role = "back";
  EXPECT_THAT(plan::problems(mixed), testing::ElementsAre("average: pipe 0 does not have it"));
}

TEST(Programs, RanksThatRunTheSameHaveOneRole) {
  Layout layout{.strategy = {}, .micro = 1};
  layout.strategy.data = 2;
  train::SessionOptions options = options_for(task_of(), layout);
  options.role_of = [](const plan::Mesh&, std::int32_t rank) { return fmt::format("{}", rank); };
  EXPECT_EQ(tests::refusal([&] { train::plan_session(options); }, base::ErrorKind::not_legal),
            "ranks 0 and 1 run the same programs, but have the roles \"0\" and \"1\"; give both the same");
}

// Each by itself, and then in turn on one device that has what the larger needs while it runs, and what both keep.
TEST(SharedDevice, ModelsInTurnAreModelsAlone) {
  struct Model {
    Task task;
    Layout layout;
    std::vector<double> alone{};
    std::vector<double> in_turn{};
  };
  Layout on_host{.strategy = {}, .micro = 2};
  on_host.strategy.offload.optimizer = {.host = 1.0};
  on_host.strategy.offload.activations = {.host = 1.0};
  std::vector<Model> models{{task_of(families::gpt2()), {.strategy = {}, .micro = 1}}, {task_of(families::llama()), on_host}};
  models[1].task.model.layers = 3;
  std::vector<plan::Plan> plans;
  for (Model& model : models) {
    const train::SessionOptions options = options_for(model.task, model.layout);
    train::Session session(options);
    for (std::uint32_t number = 1; number <= 4; ++number) model.alone.push_back(step(session, model.task, model.layout, number));
    plans.push_back(session.plan());
  }
  const std::vector<const plan::Plan*> both{&plans[0], &plans[1]};
  const std::unique_ptr<executor::SharedDevice> device = executor::cpu_backend().share(both, 0);
  for (const plan::Tier tier : {plan::Tier::device, plan::Tier::host}) {
    std::int64_t most = 0;
    for (const plan::Plan& plan : plans)
      most = std::max(most, (plan.classes[0].arena[static_cast<std::size_t>(tier)] - plan::kept_bytes(plan.classes[0], tier)).count);
    EXPECT_EQ(std::ssize(device->passing(tier)), most);
    EXPECT_GT(most, 0) << name_of(tier);
  }
  std::vector<std::unique_ptr<train::Session>> sessions;
  for (const Model& model : models) {
    train::SessionOptions options = options_for(model.task, model.layout);
    options.shared = device.get();
    sessions.push_back(std::make_unique<train::Session>(options));
  }
  for (std::uint32_t number = 1; number <= 4; ++number) {
    for (std::size_t index = 0; index < models.size(); ++index)
      models[index].in_turn.push_back(step(*sessions[index], models[index].task, models[index].layout, number));
  }
  for (const Model& model : models) EXPECT_EQ(model.in_turn, model.alone);
}

}  // namespace
}  // namespace plimsoll::ranks
