// A parameter whose gradient data ranks do not sum: each rank has its own, which its own samples train. One rank that has all of them in a
// table, of which each sample uses the row of the rank that it would be on, is what they must agree with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <mutex>

#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "plan/file.h"
#include "plan/verify.h"
#include "ranks/layouts.h"
#include "support/refusal.h"
#include "train/stored/kept_states.h"
#include "train/stored/snapshot.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

constexpr std::int64_t kVocab = 53;
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kSamples = 8;
constexpr std::int64_t kRanks = 2;
constexpr const char* kTable = "own.table";

using Values = std::vector<float>;

// Token types say whose row a sample uses.
void write_forward(bool own, graph::Builder& build) {
  build.block("embed", graph::BlockKind::opening);
  const graph::ValueId tokens = build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.5));
  const graph::ValueId table = build.parameter(kTable, {kRanks, kWidth}, graph::normal(0.5));
  if (own) build.sum_over({});
  graph::ValueId x = build.embed({{build.tokens(), tokens}, {build.token_types(), table}}, "embed");
  build.block("layer");
  const graph::ValueId h = build.linear(x, "up", 2 * kWidth, {.bias = true, .init_std = 0.4});
  x = build.residual(x, build.linear(build.activation(h, ops::ActivationKind::gelu_tanh, "active"), "down", kWidth, {.init_std = 0.4}), 0.0,
                     "sum");
  build.block("head", graph::BlockKind::closing);
  build.head(x, build.parameter("head.weight", {kVocab, kWidth}, graph::normal(0.3)));
}

struct Found {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, Values> shared;
  std::vector<Values> tables;  // by rank
  double evaluation = 0.0;
};

class OwnParameters : public testing::Test {
 protected:
  train::SessionOptions options_of(const strategy::Strategy& strategy, bool own, const char* optimizer, double clip) const {
    Task task{.model = small_model(families::gpt2()), .precision = precision_, .clip = clip, .samples = kSamples};
    task.optimizer = optimizer;
    train::SessionOptions options = options_for(task, {.strategy = strategy, .micro = 1});
    options.forward = [own](graph::Builder& build) { write_forward(own, build); };
    options.training.optimizer.weight_decay = 0.0;  // rows that nobody uses stay what they are
    return options;
  }

  static void fill_batch(train::Session& session, std::string_view program, std::int64_t micro_batches, std::uint32_t number) {
    const std::int64_t place = session.plan().mesh.place(ops::Shares::batch, session.rank());
    for (std::int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const std::int64_t sample = place * micro_batches + micro_batch;
      fill(session, program, static_cast<std::int32_t>(micro_batch), sample, kVocab, number);
      const auto types = session.input(program, "token_types", static_cast<std::int32_t>(micro_batch));
      std::fill(types.begin(), types.end(), static_cast<std::int32_t>(sample / (kSamples / kRanks)));
    }
  }

  Found train(const train::SessionOptions& options, std::uint32_t first, std::uint32_t last, bool saves = false) {
    Found found;
    found.tables.resize(static_cast<std::size_t>(options.strategy.ranks()));
    std::mutex mutex;
    std::vector<checkpoint::Part> parts(static_cast<std::size_t>(options.strategy.ranks()));
    const checkpoint::SaveRequest request{.identity = {.run = "own", .config = "0"}, .step = last};
    if (saves) checkpoint::begin(files_, folder_.path(), request.step);
    for_each_rank(options, [&](train::Session& session) {
      plan::verify(session.plan(), "lowering");
      io::PosixFileSystem files;
      if (first > 1) {
        train::load_held(files, checkpoint::open(files, folder_.path() / fmt::format("step-{:08}", first - 1)), session);
        session.refresh_weights();
      }
      std::vector<train::StepResult> results;
      for (std::uint32_t number = first; number <= last; ++number) {
        fill_batch(session, "train", options.micro_batches, number);
        results.push_back(session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(kSamples)}));
      }
      const Values table = train::read_parameter(session, kTable);
      std::map<std::string, Values> shared;
      for (const char* name : {"embed.tokens", "up.weight", "up.bias", "down.weight", "head.weight"})
        shared[name] = train::read_parameter(session, name);
      if (saves) {
        parts[static_cast<std::size_t>(session.rank())] =
            checkpoint::write_part(files, folder_.path(), request, session.rank(), train::sources_of(session, train::own_pieces(session)));
      }
      const std::lock_guard lock(mutex);
      found.tables[static_cast<std::size_t>(session.rank())] = table;
      if (session.rank() > 0) return;
      found.shared = std::move(shared);
      for (const train::StepResult& result : results) {
        found.losses.push_back(result.loss);
        found.norms.push_back(result.gradient_norm);
      }
    });
    if (saves) checkpoint::commit(files_, folder_.path(), request, parts);
    return found;
  }

  model::Precision precision_ = model::Precision::f32;
  io::PosixFileSystem files_;
  tests::TemporaryFolder folder_;
};

Values row_of(const Values& table, std::size_t row) {
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(row) * kWidth;
  return {begin, begin + kWidth};
}

void expect_close(const Values& found, const Values& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t index = 0; index < found.size(); ++index) ASSERT_NEAR(found[index], expected[index], 2e-4) << what << " " << index;
}

strategy::Strategy over(std::int64_t data, std::int64_t zero = 0, bool keep = true) {
  strategy::Strategy strategy;
  strategy.data = data;
  strategy.zero = zero;
  strategy.keep_grads = keep;
  return strategy;
}

TEST_F(OwnParameters, AreTrainedByTheirRanksSamplesAlone) {
  for (const auto& [optimizer, clip] : {std::pair{"sgd", 0.0}, {"adamw", 0.5}}) {
    const Found expected = train(options_of(over(1), false, optimizer, clip), 1, 4);
    const Values initial = train(options_of(over(1), false, optimizer, clip), 1, 0).tables[0];
    ASSERT_NE(row_of(expected.tables[0], 0), row_of(initial, 0));
    for (const auto& [zero, keep] : {std::pair{0, true}, {1, true}, {2, true}, {2, false}, {3, true}, {3, false}}) {
      SCOPED_TRACE(fmt::format("ZeRO {} keep {} clip {}", zero, keep, clip));
      const Found found = train(options_of(over(kRanks, zero, keep), true, optimizer, clip), 1, 4);
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(found.losses[step], expected.losses[step], 2e-5);
        EXPECT_NEAR(found.norms[step], expected.norms[step], 1e-4 * expected.norms[step]);
      }
      for (const auto& [name, values] : expected.shared) expect_close(found.shared.at(name), values, name);
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        expect_close(row_of(found.tables[rank], rank), row_of(expected.tables[0], rank), "own row");
        EXPECT_EQ(row_of(found.tables[rank], 1 - rank), row_of(initial, 1 - rank));
      }
    }
  }
}

TEST_F(OwnParameters, ComposeWithTensorAndPipeRanks) {
  const Found expected = train(options_of(over(1), false, "adamw", 0.5), 1, 3);
  for (const bool pipe : {false, true}) {
    strategy::Strategy strategy = over(kRanks, 1);
    (pipe ? strategy.pipe : strategy.tensor) = 2;
    const train::SessionOptions options = options_of(strategy, true, "adamw", 0.5);
    const Found found = train(options, 1, 3);
    for (std::size_t step = 0; step < expected.losses.size(); ++step) {
      EXPECT_NEAR(found.losses[step], expected.losses[step], 2e-5);
      EXPECT_NEAR(found.norms[step], expected.norms[step], 1e-4 * expected.norms[step]);
    }
    for (const auto& [name, values] : expected.shared) expect_close(found.shared.at(name), values, name);
  }
}

TEST_F(OwnParameters, AreSavedRankByRankAndGoOnToTheBit) {
  for (const model::Precision precision : {model::Precision::f32, model::Precision::bf16}) {
    precision_ = precision;
    const train::SessionOptions options = options_of(over(kRanks, 1), true, "adamw", 1.0);
    const Found whole = train(options, 1, 4);
    const Found half = train(options, 1, 2, true);
    EXPECT_NE(half.tables[0], half.tables[1]);
    const Found rest = train(options, 3, 4);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(rest.tables, whole.tables);
    // On one rank the first one's goes on.
    EXPECT_EQ(train(options_of(over(1), true, "adamw", 1.0), 3, 2).tables[0], half.tables[0]);
    checkpoint::discard(files_, folder_.path() / "step-00000002");
  }
}

TEST_F(OwnParameters, AreInThePlanAndItsFile) {
  const plan::Plan plan = train::plan_session(options_of(over(kRanks, 3), true, "adamw", 1.0));
  EXPECT_EQ(plan::plan_from_json(plan::to_json(plan)), plan);
  std::vector<std::string> names;
  for (const train::KeptState& state : train::kept_states(plan)) names.push_back(state.name);
  EXPECT_THAT(names, testing::ElementsAre("own.table", "own.table.m", "own.table.v"));
}

TEST_F(OwnParameters, AreRefusedInGroups) {
  strategy::Strategy strategy = over(4, 1);
  strategy.zero_group = 2;
  const std::string refusal =
      tests::refusal([&] { train::plan_session(options_of(strategy, true, "adamw", 1.0)); }, base::ErrorKind::not_legal);
  EXPECT_THAT(refusal, testing::HasSubstr("parameter own.table: each data rank has its own, but with \"zero_group\" 2"));
  strategy::Strategy other = over(2);
  other.more = {
      {.row = {.axis = ops::Axis("team"), .shares = ops::Shares::batch, .inside = ops::Axis::data, .sums_gradients = true}, .degree = 2}};
  EXPECT_THAT(tests::refusal([&] { train::plan_session(options_of(other, true, "adamw", 1.0)); }, base::ErrorKind::not_legal),
              testing::HasSubstr("parameter own.table: its gradient is not summed over the axis \"team\""));
}

}  // namespace
}  // namespace plimsoll::ranks
