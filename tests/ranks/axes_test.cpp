// Axes that no source knows: their rows come with the strategy. One only replicates, and a mesh with it does what a mesh without it does,
// to the bit; the other shares out the batch, and is a second data axis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <numeric>
#include <sstream>

#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "cluster/presets.h"
#include "collectives/local/threads.h"
#include "executor/sim/simulate.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "plan/file.h"
#include "plan/print.h"
#include "plan/verify.h"
#include "planner/problems.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"
#include "support/refusal.h"
#include "train/foresight/planning.h"
#include "train/stored/kept_states.h"
#include "train/stored/snapshot.h"

namespace plimsoll::ranks {
namespace {

using ops::Axis;

constexpr Axis kReplica{"replica"};
constexpr Axis kTeam{"team"};
constexpr std::int64_t kSamples = 8;

// Every rank of it does what the others do; the first writes the checkpoint.
strategy::AxisDegree replica(std::int64_t degree = 2, const Axis& inside = Axis::data) {
  return {.row = {.axis = kReplica, .inside = inside, .one_writes = true}, .degree = degree};
}

// Its ranks have samples of their own.
strategy::AxisDegree team(std::int64_t degree, const Axis& inside = Axis::data) {
  return {.row = {.axis = kTeam, .shares = ops::Shares::batch, .inside = inside, .sums_gradients = true}, .degree = degree};
}

struct Case {
  std::int64_t data = 2;
  std::int64_t zero = 0;
  std::int64_t pipe = 1;
  std::int64_t tensor = 1;
  std::int64_t group = 0;
  Axis inside = Axis::data;
  std::string schedule = "1f1b";

  Layout layout(std::vector<strategy::AxisDegree> more = {}) const {
    Layout layout{.strategy = {}, .micro = 1};
    layout.strategy.data = data;
    layout.strategy.zero = zero;
    layout.strategy.pipe = pipe;
    layout.strategy.tensor = tensor;
    layout.strategy.zero_group = group;
    layout.strategy.schedule = schedule;
    layout.strategy.more = std::move(more);
    return layout;
  }
};

void PrintTo(const Case& test, std::ostream* out) {
  *out << "data " << test.data << " ZeRO " << test.zero << " pipe " << test.pipe << " tensor " << test.tensor << " group " << test.group
       << " inside " << test.inside.name();
}

Task task_of(model::Precision precision = model::Precision::f32) {
  return {.model = small_model(families::gpt2()), .precision = precision, .samples = kSamples};
}

void expect_same_bits(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.norms, expected.norms);
  EXPECT_EQ(found.parameters, expected.parameters);
  EXPECT_EQ(found.evaluation, expected.evaluation);
}

void expect_close(const Outcome& found, const Outcome& expected) {
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], 2e-5);
    EXPECT_NEAR(found.norms[step], expected.norms[step], 2e-4 * expected.norms[step]);
  }
  EXPECT_NEAR(found.evaluation, expected.evaluation, 1e-3);
  for (const auto& [name, values] : expected.parameters) {
    for (std::size_t index = 0; index < values.size(); ++index) ASSERT_NEAR(found.parameters.at(name)[index], values[index], 2e-3) << name;
  }
}

class Replicas : public testing::TestWithParam<Case> {};

TEST_P(Replicas, ChangeNoBit) {
  const Case& test = GetParam();
  const Outcome without = train(task_of(), test.layout());
  const Outcome with = train(task_of(), test.layout({replica(2, test.inside)}));
  expect_same_bits(with, without);
  EXPECT_EQ(with.sent, with.predicted);
  EXPECT_EQ(with.arena, without.arena);
  // All that is sent is sent twice.
  const auto sum = [](const std::vector<std::int64_t>& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}); };
  EXPECT_EQ(sum(with.sent), 2 * sum(without.sent));
}

TEST_P(Replicas, AreInThePlanAndItsFile) {
  const Case& test = GetParam();
  const plan::Plan without = train::plan_session(options_for(task_of(), test.layout()));
  const plan::Plan plan = train::plan_session(options_for(task_of(), test.layout({replica(2, test.inside)})));
  EXPECT_THAT(plan::problems(plan), testing::IsEmpty());
  EXPECT_EQ(plan.mesh.ranks(), 2 * without.mesh.ranks());
  EXPECT_EQ(plan.classes.size(), without.classes.size());
  const std::string text = plan::to_text(plan);
  EXPECT_EQ(plan::plan_from_json(base::parse_json(text, "plan")), plan);
  EXPECT_EQ(plan::to_text(plan::plan_from_json(base::parse_json(text, "plan"))), text);
  EXPECT_THAT(plan::to_string(plan), testing::HasSubstr(" replica 2\n"));
  EXPECT_THAT(text, testing::HasSubstr("\"name\":\"replica\""));
  EXPECT_THAT(plan::to_text(without), testing::Not(testing::HasSubstr("\"axes\"")));
  // A plan that is for fewer ranks than there are is no plan.
  std::string other = text;
  other.replace(other.find("\"extent\":2"), 10, "\"extent\":3");
  EXPECT_THROW(plan::plan_from_json(base::parse_json(other, "plan")), base::Error);
}

TEST_P(Replicas, TakeTheSameTimeOnLinksOfTheirOwn) {
  const Case& test = GetParam();
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  const plan::Plan without = train::plan_session(options_for(task_of(), test.layout()));
  const plan::Plan plan = train::plan_session(options_for(task_of(), test.layout({replica(2, test.inside)})));
  const executor::sim::Result one = executor::sim::simulate(without, cluster);
  const executor::sim::Result two = executor::sim::simulate(plan, cluster);
  EXPECT_GT(one.seconds, 0.0);
  EXPECT_NEAR(two.seconds, one.seconds, 1e-9 * one.seconds);
  EXPECT_EQ(two.ranks, 2 * one.ranks);
  for (std::size_t link = 0; link < one.bytes.size(); ++link) EXPECT_NEAR(two.bytes[link], 2.0 * one.bytes[link], 1e-3);
  // A slow rank is simulated for itself, and slows the others of its data ranks down.
  const std::int32_t last = plan.mesh.ranks() - 1;
  const executor::sim::Result slow = executor::sim::simulate(plan, cluster, {.stragglers = {{.rank = last, .factor = 3.0}}});
  EXPECT_GT(slow.seconds, 1.5 * one.seconds);
  EXPECT_TRUE(std::any_of(slow.times.begin(), slow.times.end(), [&](const executor::sim::RankTimes& times) {
    return times.first_rank == last && times.ranks == 1 && times.name.find("replica 1") != std::string::npos;
  }));
  // Its outline, which has one class for all ranks that share out tensors.
  const plan::Plan outline = train::outline_session(options_for(task_of(), test.layout({replica(2, test.inside)})));
  const executor::sim::Result folded = executor::sim::simulate(outline, cluster, {.tensor_folded = true});
  EXPECT_NEAR(folded.seconds, two.seconds, 0.02 * two.seconds);
  std::int64_t ranks = 0;
  for (const executor::sim::RankTimes& times : folded.times) ranks += times.ranks;
  EXPECT_EQ(ranks, plan.mesh.ranks());
}

INSTANTIATE_TEST_SUITE_P(Meshes, Replicas,
                         testing::Values(Case{}, Case{.zero = 1}, Case{.zero = 3}, Case{.zero = 1, .pipe = 2}, Case{.zero = 1, .tensor = 2},
                                         Case{.zero = 3, .inside = Axis::tensor}, Case{.zero = 1, .tensor = 2, .inside = Axis::tensor},
                                         Case{.pipe = 2, .inside = Axis::pipe}, Case{.zero = 3, .inside = Axis()},
                                         Case{.data = 4, .zero = 2, .group = 2}, Case{.data = 1, .pipe = 2, .tensor = 2},
                                         Case{.zero = 1, .pipe = 2, .inside = Axis(), .schedule = "zb-h1"}));

TEST(Replicas, TwoFurtherAxesNestAsTheySay) {
  constexpr Axis kOther{"other"};
  strategy::Strategy strategy;
  strategy.data = 2;
  strategy.tensor = 3;
  strategy.pipe = 2;
  strategy.more = {replica(2), {.row = {.axis = kOther, .inside = kReplica, .one_writes = true}, .degree = 5}};
  EXPECT_EQ(strategy.ranks(), 120);
  EXPECT_EQ(strategy.stride(Axis::tensor), 1);
  EXPECT_EQ(strategy.stride(kOther), 3);
  EXPECT_EQ(strategy.stride(kReplica), 15);
  EXPECT_EQ(strategy.stride(Axis::data), 30);
  EXPECT_EQ(strategy.stride(Axis::pipe), 60);
  EXPECT_EQ(strategy::describe(strategy).substr(0, 55), "data 2 x tensor 3 x pipe 2 x replica 2 x other 5, ZeRO ");
  std::vector<plan::MeshAxis> axes;
  for (const auto& [row, degree] : strategy.degrees()) axes.push_back({.row = row, .extent = static_cast<std::int32_t>(degree)});
  plan::Mesh mesh(axes);
  mesh.tie(1);
  ASSERT_EQ(mesh.ranks(), 120);
  for (std::int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    std::int32_t sum = 0;
    for (const Axis& axis : {Axis::pipe, Axis::data, kReplica, kOther, Axis::tensor}) {
      sum += mesh.place(axis, rank) * mesh.stride(axis, rank);
      const std::vector<std::int32_t> group = mesh.group(axis, rank);
      ASSERT_EQ(std::ssize(group), mesh.extent(axis));
      EXPECT_EQ(group[static_cast<std::size_t>(mesh.place(axis, rank))], rank);
    }
    EXPECT_EQ(sum, rank);
    EXPECT_EQ(mesh.alike(rank).size(), 20u);
    EXPECT_EQ(mesh.extent(ops::Shares::batch, rank), 2);
    EXPECT_EQ(mesh.place(ops::Shares::batch, rank), mesh.place(Axis::data, rank));
    EXPECT_EQ(mesh.group(Axis::tied, rank), (std::vector{rank % 60, rank % 60 + 60}));
  }
}

TEST(Replicas, AreRefusedWhereTheyCannotBe) {
  const auto reasons = [](const std::function<void(strategy::Strategy&)>& change) {
    strategy::Strategy strategy = Case{}.layout({replica()}).strategy;
    change(strategy);
    return tests::refusal([&] { strategy::require_legal(strategy, 4); }, base::ErrorKind::not_legal);
  };
  using testing::HasSubstr;
  EXPECT_THAT(reasons([](auto& strategy) { strategy.more.push_back(replica()); }), HasSubstr("the axis \"replica\" must be"));
  EXPECT_THAT(reasons([](auto& strategy) { strategy.more[0].row.axis = Axis::tied; }), HasSubstr("the axis \"tied\" must be"));
  EXPECT_THAT(reasons([](auto& strategy) { strategy.more[0].degree = 0; }), HasSubstr("has 0 ranks; use 1 or more"));
  EXPECT_THAT(reasons([](auto& strategy) { strategy.more[0].row.inside = kTeam; }), HasSubstr("is inside \"team\", which is none"));
  EXPECT_THAT(reasons([](auto& strategy) {
                strategy.pipe = 2;
                strategy.partition = strategy::StagePartition::listed;
                strategy.stages = {{.blocks = 1, .data = 2, .tensor = 1}, {.blocks = 1, .data = 1, .tensor = 2}};
              }),
              HasSubstr("but there is an axis \"replica\" beside them"));
}

// ---- checkpoints

class Checkpoints : public testing::Test {
 protected:
  static void on_ranks(const Layout& layout, const std::function<void(train::Session&, std::int64_t)>& body) {
    const train::SessionOptions options = options_for(task_of(), layout);
    collectives::local::run_threads(static_cast<int>(layout.strategy.ranks()), [&](collectives::Transport& transport) {
      train::SessionOptions own = options;
      own.transport = &transport;
      train::Session session(own);
      body(session, options.micro_batches);
    });
  }

  static double step(train::Session& session, std::int64_t micro_batches, std::uint32_t number) {
    const std::int64_t place = session.plan().mesh.place(ops::Shares::batch, session.rank());
    for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
      fill(session, "train", static_cast<std::int32_t>(micro_batch), place * micro_batches + micro_batch, task_of().model.vocab, number);
    return session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(kSamples)}).loss;
  }

  // Losses of the steps; from the checkpoint of the step before the first, where there is one, and with one of the last, where asked for.
  std::vector<double> train(const Layout& layout, std::uint32_t first, std::uint32_t last, bool saves) {
    std::vector<double> losses;
    std::mutex mutex;
    std::vector<checkpoint::Part> parts(static_cast<std::size_t>(layout.strategy.ranks()));
    const checkpoint::SaveRequest request{.identity = {.run = "axes", .config = "0"}, .step = last};
    if (saves) checkpoint::begin(files_, folder_.path(), request.step);
    on_ranks(layout, [&](train::Session& session, std::int64_t micro_batches) {
      io::PosixFileSystem files;
      if (first > 1) {
        train::load_held(files, checkpoint::open(files, folder_.path() / fmt::format("step-{:08}", first - 1)), session);
        session.refresh_weights();
      }
      for (std::uint32_t number = first; number <= last; ++number) {
        const double loss = step(session, micro_batches, number);
        const std::lock_guard lock(mutex);
        if (session.rank() == 0) losses.push_back(loss);
      }
      if (!saves) return;
      const std::vector<train::HeldPiece> pieces = train::own_pieces(session);
      const std::int32_t place = session.plan().mesh.place(kReplica, session.rank());
      const std::lock_guard lock(mutex);
      EXPECT_EQ(pieces.empty(), place > 0) << "rank " << session.rank();
      parts[static_cast<std::size_t>(session.rank())] =
          checkpoint::write_part(files, folder_.path(), request, session.rank(), train::sources_of(session, pieces));
    });
    if (saves) checkpoint::commit(files_, folder_.path(), request, parts);
    return losses;
  }

  io::PosixFileSystem files_;
  tests::TemporaryFolder folder_;
};

TEST_F(Checkpoints, OneOfTheReplicasWritesAndAnyMeshGoesOn) {
  for (const Case& test : {Case{}, Case{.zero = 1, .tensor = 2}, Case{.zero = 3}, Case{.zero = 1, .pipe = 2, .inside = Axis()}}) {
    const Layout with = test.layout({replica(2, test.inside)});
    const Layout without = test.layout();
    const std::vector<double> whole = train(without, 1, 4, false);
    const std::vector<double> rest(whole.begin() + 2, whole.end());
    train(with, 1, 2, true);
    EXPECT_EQ(train(with, 3, 4, false), rest);
    EXPECT_EQ(train(without, 3, 4, false), rest);
    EXPECT_EQ(train(test.layout({replica(3)}), 3, 4, false), rest);
    checkpoint::discard(files_, folder_.path() / "step-00000002");
    train(without, 1, 2, true);
    EXPECT_EQ(train(with, 3, 4, false), rest);
    checkpoint::discard(files_, folder_.path() / "step-00000002");
  }
}

// ---- the planner

TEST(Planner, KeepsAnAxisThatItIsGiven) {
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    const planner::Problem problem = tests::small_problem({.ranks = ranks, .per_node = 8});
    strategy::Strategy rest;
    rest.more = {replica()};
    planner::Estimator estimator(problem);
    const planner::Found found = planner::search(estimator, planner::whole_space(problem, {}, rest));
    ASSERT_FALSE(found.candidates.empty());
    for (const planner::Candidate& candidate : found.candidates) {
      EXPECT_EQ(candidate.choice.strategy.more, rest.more);
      EXPECT_EQ(candidate.choice.strategy.ranks(), ranks);
    }
    EXPECT_THAT(planner::describe(found.candidates[0].choice), testing::HasSubstr(" x replica 2, micro-batch"));
    // What half of the ranks would do, if they lay as far apart.
    const planner::Problem half = tests::small_problem({.ranks = ranks / 2, .per_node = 8});
    planner::Estimator other(half);
    const planner::Found without = planner::search(other, planner::whole_space(half, {}, {}));
    ASSERT_FALSE(without.candidates.empty());
    if (ranks <= 8) {
      EXPECT_DOUBLE_EQ(found.candidates[0].estimate.step_seconds, without.candidates[0].estimate.step_seconds);
    }
  }
  EXPECT_TRUE(planner::contradictions(tests::small_problem({.ranks = 8}), {.data = 2, .tensor = 2, .pipe = 1}, 2).empty());
  EXPECT_EQ(planner::contradictions(tests::small_problem({.ranks = 8}), {.data = 2, .tensor = 2, .pipe = 2}, 2).front(),
            "\"data\": 2, \"tensor\": 2 and \"pipe\": 2 make 8 ranks of 2 each, but there are 8");
}

// ---- an axis that shares out the batch

TEST(BatchAxis, IsASecondDataAxis) {
  const Outcome alone = train(task_of(), Case{.data = 1}.layout());
  for (const Case& test : {Case{.data = 1}, Case{}, Case{.zero = 1}, Case{.zero = 2}, Case{.zero = 3, .inside = Axis::pipe},
                           Case{.zero = 1, .tensor = 2}, Case{.data = 1, .pipe = 2}, Case{.data = 4, .zero = 1, .group = 2}}) {
    std::ostringstream words;
    PrintTo(test, &words);
    SCOPED_TRACE(words.str());
    for (const bool keep : {true, false}) {
      Layout layout = test.layout({team(2, test.inside)});
      layout.strategy.keep_grads = keep;
      const Outcome found = train(task_of(), layout);
      expect_close(found, alone);
      EXPECT_EQ(found.sent, found.predicted);
    }
  }
}

// The gradients that a data rank is left with, once a step, and the losses.
TEST(BatchAxis, BytesAreTheClosedForm) {
  for (const std::int64_t zero : {0, 1}) {
    const plan::Plan plan = train::plan_session(options_for(task_of(), Case{.zero = zero}.layout({team(4)})));
    const plan::RankClass& rank_class = plan.classes[0];
    std::int64_t bytes = 0;
    for (const plan::Buffer& buffer : rank_class.buffers) {
      if (buffer.kind == plan::BufferKind::state && buffer.name.ends_with(".m")) bytes += buffer.type.bytes();
    }
    ASSERT_GT(bytes, 0);
    const auto scalars = static_cast<std::int64_t>(sizeof(ops::StepScalars));
    EXPECT_EQ(plan::wire_bytes(plan, *plan::find_program(rank_class, "train"), kTeam, 0).count, 2 * bytes * 3 / 4 + 3 * scalars);
  }
}

}  // namespace
}  // namespace plimsoll::ranks
