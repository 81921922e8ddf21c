// State that says itself how it is kept: a running mean and the errors of rounding, which the forward pass writes and each data rank has of
// what it saw. Written once for each micro-batch whatever is made again, saved rank by rank, merged by its rule for other numbers of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "collectives/local/threads.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "plan/file.h"
#include "plan/print.h"
#include "ranks/layouts.h"
#include "support/refusal.h"
#include "train/stored/kept_states.h"
#include "train/stored/snapshot.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

constexpr std::int64_t kVocab = 53;
constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kLayers = 2;
constexpr double kMomentum = 0.25;
constexpr std::int64_t kSamples = 12;

using Values = std::vector<float>;
using States = std::map<std::string, Values>;  // by name in a checkpoint

struct Remembering {
  bool mean = true;
  bool rounds = true;
  bool deals = false;  // tensor ranks have columns of what the mean is of
};

void write_forward(const Remembering& what, graph::Builder& build) {
  build.block("embed", graph::BlockKind::opening);
  graph::ValueId x = build.embed({{build.tokens(), build.parameter("embed.tokens", {kVocab, kWidth}, graph::normal(0.5))}}, "embed");
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = fmt::format("layers.{}", layer);
    build.block(name);
    const ops::Placement rows = what.deals ? ops::split(0, kWidth) : ops::whole();
    const ops::Placement columns = what.deals ? ops::split(1, kWidth) : ops::whole();
    graph::ValueId h = build.linear(x, name + ".up", kWidth, {.bias = true, .init_std = 0.4, .deal = rows});
    if (what.mean) build.running_mean(h, name + ".mean", kMomentum, rows);
    if (what.rounds) h = build.round_with_error(h, name + ".error", base::DType::bf16);
    h = build.activation(h, ops::ActivationKind::gelu_tanh, name + ".active");
    x = build.residual(x, build.linear(h, name + ".down", kWidth, {.bias = true, .init_std = 0.4, .deal = columns}), 0.0, name + ".sum");
  }
  build.block("head", graph::BlockKind::closing);
  build.head(x, build.parameter("head.weight", {kVocab, kWidth}, graph::normal(0.3)));
}

strategy::Strategy over(std::int64_t data, std::int64_t tensor = 1, std::int64_t pipe = 1) {
  strategy::Strategy strategy;
  strategy.data = data;
  strategy.tensor = tensor;
  strategy.pipe = pipe;
  return strategy;
}

class KeptStates : public testing::Test {
 protected:
  void on_ranks(const strategy::Strategy& strategy, const std::function<void(train::Session&)>& body) const {
    const Task task{.model = small_model(families::gpt2()), .samples = kSamples};
    train::SessionOptions options = options_for(task, {.strategy = strategy, .micro = 1});
    options.forward = [what = what_](graph::Builder& build) { write_forward(what, build); };
    if (strategy.ranks() == 1) {
      train::Session session(options);
      return body(session);
    }
    collectives::local::run_threads(static_cast<int>(strategy.ranks()), [&](collectives::Transport& transport) {
      train::SessionOptions own = options;
      own.transport = &transport;
      train::Session session(own);
      body(session);
    });
  }

  static double step(train::Session& session, std::uint32_t number) {
    const plan::Mesh& mesh = session.plan().mesh;
    const std::int64_t own = kSamples / mesh.extent(ops::Axis::data);
    for (std::int64_t sample = 0; sample < own; ++sample)
      fill(session, "train", static_cast<std::int32_t>(sample), mesh.place(ops::Axis::data, session.rank()) * own + sample, kVocab, number);
    return session.step({.learning_rate = 1e-2f, .step = number, .valid_targets = valid_targets(kSamples)}).loss;
  }

  // What the rank holds that is no parameter's, whole, under the names of a checkpoint.
  static void collect(train::Session& session, States& states) {
    for (const train::HeldPiece& piece : train::held_pieces(session)) {
      if (piece.name.find("mean") == std::string::npos && piece.name.find("error") == std::string::npos) continue;
      if (piece.bytes == 0) continue;
      Values& values = states[piece.name];
      values.resize(static_cast<std::size_t>(piece.whole.shape.elements()));
      std::memcpy(reinterpret_cast<std::byte*>(values.data()) + piece.begin, piece.data.data(), piece.data.size());
    }
  }

  struct Outcome {
    std::vector<double> losses;  // of the steps
    States states;               // of all ranks, afterwards
    bool operator==(const Outcome&) const = default;
  };

  // Steps `first` .. `last`, from the checkpoint of the step before where that is not the first; then saves.
  Outcome train(const strategy::Strategy& strategy, std::uint32_t first, std::uint32_t last, bool saves = false) {
    Outcome outcome;
    std::mutex mutex;
    std::vector<checkpoint::Part> parts(static_cast<std::size_t>(strategy.ranks()));
    const checkpoint::SaveRequest request{.identity = {.run = "states", .config = "0"}, .step = last, .keep = 9};
    if (saves) checkpoint::begin(files_, folder_.path(), request.step);
    on_ranks(strategy, [&](train::Session& session) {
      io::PosixFileSystem files;
      if (first > 1) {
        train::load_held(files, checkpoint::open(files, folder_.path() / fmt::format("step-{:08}", first - 1)), session);
        session.refresh_weights();
      }
      {
        const std::lock_guard lock(mutex);
        if (last < first) collect(session, outcome.states);
      }
      for (std::uint32_t number = first; number <= last; ++number) {
        const double loss = step(session, number);
        const std::lock_guard lock(mutex);
        if (session.rank() == 0) outcome.losses.push_back(loss);
      }
      if (saves) {
        parts[static_cast<std::size_t>(session.rank())] =
            checkpoint::write_part(files, folder_.path(), request, session.rank(), train::sources_of(session, train::own_pieces(session)));
      }
      const std::lock_guard lock(mutex);
      if (last >= first) collect(session, outcome.states);
    });
    if (saves) checkpoint::commit(files_, folder_.path(), request, parts);
    return outcome;
  }

  // What ranks find in the checkpoint of a step.
  States found(const strategy::Strategy& strategy, std::uint32_t after) { return train(strategy, after + 1, after).states; }

  Remembering what_;
  io::PosixFileSystem files_;
  tests::TemporaryFolder folder_;
};

Values sum(const std::vector<const Values*>& summands, double by = 1.0) {
  Values sums(summands.front()->size());
  for (std::size_t index = 0; index < sums.size(); ++index) {
    double sum = 0.0;
    for (const Values* summand : summands) sum += (*summand)[index];
    sums[index] = static_cast<float>(sum / by);
  }
  return sums;
}

// The mean of the first layer, in double, from the parameters that each step began with.
TEST_F(KeptStates, ARunningMeanIsThatOfWhatWasSeen) {
  what_.rounds = false;
  on_ranks(over(1), [&](train::Session& session) {
    std::vector<double> mean(kWidth, 0.0);
    for (std::uint32_t number = 1; number <= 3; ++number) {
      const Values table = train::read_parameter(session, "embed.tokens");
      const Values weight = train::read_parameter(session, "layers.0.up.weight");
      const Values bias = train::read_parameter(session, "layers.0.up.bias");
      for (std::int64_t sample = 0; sample < kSamples; ++sample) {
        fill(session, "train", static_cast<std::int32_t>(sample), sample, kVocab, number);
        const auto tokens = session.input("train", "tokens", static_cast<std::int32_t>(sample));
        for (std::int64_t column = 0; column < kWidth; ++column) {
          double total = 0.0;
          for (const std::int32_t token : tokens) {
            total += bias[static_cast<std::size_t>(column)];
            for (std::int64_t k = 0; k < kWidth; ++k)
              total += static_cast<double>(weight[static_cast<std::size_t>(column * kWidth + k)]) *
                       table[static_cast<std::size_t>(token * kWidth + k)];
          }
          double& so_far = mean[static_cast<std::size_t>(column)];
          so_far = (1.0 - kMomentum) * so_far + kMomentum * total / static_cast<double>(tokens.size());
        }
      }
      step(session, number);
    }
    States states;
    collect(session, states);
    for (std::size_t column = 0; column < kWidth; ++column) EXPECT_NEAR(states.at("layers.0.mean@data.0")[column], mean[column], 2e-5);
  });
}

// Twelve micro-batches a step: a state that were written again with what is made again would be another, and so would what it rounds.
TEST_F(KeptStates, AreWrittenOnceWhateverIsMadeAgain) {
  for (const std::int64_t pipe : {1, 2}) {
    strategy::Strategy strategy = over(1, 1, pipe);
    const Outcome expected = train(strategy, 1, 3);
    EXPECT_EQ(expected.states.size(), 2u * kLayers);
    for (const auto& [name, values] : expected.states)
      EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0f; })) << name;
    for (const strategy::Recompute recompute : {strategy::Recompute::full, strategy::Recompute::selective, strategy::Recompute::optimal}) {
      strategy.recompute = recompute;
      EXPECT_EQ(train(strategy, 1, 3), expected) << "recompute " << static_cast<int>(recompute) << ", pipe " << pipe;
    }
  }
}

TEST_F(KeptStates, AKilledRunGoesOnToTheBit) {
  for (const strategy::Strategy& strategy : {over(1), over(2), over(2, 1, 2)}) {
    const Outcome whole = train(strategy, 1, 4);
    train(strategy, 1, 2, true);
    const Outcome resumed = train(strategy, 3, 4);
    EXPECT_EQ(resumed.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
    EXPECT_EQ(resumed.states, whole.states);
    checkpoint::discard(files_, folder_.path() / "step-00000002");
  }
}

TEST_F(KeptStates, AreMergedByTheirRules) {
  const States four = train(over(4), 1, 2, true).states;
  ASSERT_EQ(four.size(), 4u * 2 * kLayers);
  const auto of = [](const States& states, const std::string& name, int rank) { return &states.at(train::name_of_rank(name, rank)); };
  const States on_two = found(over(2), 2);
  const States two = train(over(2), 3, 4, true).states;
  const States on_three = found(over(3), 4);
  train(over(3), 5, 5);
  const States on_one = found(over(1), 4);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string mean = fmt::format("layers.{}.mean", layer);
    const std::string error = fmt::format("layers.{}.error", layer);
    const Values mean_of_four = sum({of(four, mean, 0), of(four, mean, 1), of(four, mean, 2), of(four, mean, 3)}, 4);
    EXPECT_NE(*of(four, mean, 0), *of(four, mean, 1));
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(*of(on_two, mean, rank), mean_of_four);
      EXPECT_EQ(*of(on_two, error, rank), sum({of(four, error, rank), of(four, error, rank + 2)}));
      EXPECT_EQ(*of(on_three, error, rank), *of(two, error, rank));
    }
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(*of(on_three, mean, rank), sum({of(two, mean, 0), of(two, mean, 1)}, 2));
    EXPECT_EQ(*of(on_three, error, 2), Values(on_three.at(train::name_of_rank(error, 2)).size(), 0.0f));
    EXPECT_EQ(*of(on_one, error, 0), sum({of(two, error, 0), of(two, error, 1)}));
  }
}

TEST_F(KeptStates, AreCutByTheirOwnDealOverTensorRanks) {
  what_ = {.rounds = false, .deals = true};
  const Outcome one = train(over(1), 1, 2);
  const Outcome dealt = train(over(1, 2), 1, 2, true);
  const States whole = found(over(1), 2);
  EXPECT_EQ(whole, dealt.states);
  for (const auto& [name, values] : one.states) {
    for (std::size_t index = 0; index < values.size(); ++index) EXPECT_NEAR(dealt.states.at(name)[index], values[index], 1e-4) << name;
  }
  EXPECT_EQ(found(over(2, 2), 2), found(over(2), 2));
  what_.rounds = true;
  const std::string refusal = tests::refusal([&] { train(over(1, 2), 1, 1); }, base::ErrorKind::not_legal);
  EXPECT_NE(refusal.find("[round_with_error] needs layers.0.error split by dim"), std::string::npos) << refusal;
}

TEST_F(KeptStates, AreInThePlanAndItsFile) {
  on_ranks(over(1), [&](train::Session& session) {
    const plan::Plan& plan = session.plan();
    EXPECT_EQ(plan::plan_from_json(plan::to_json(plan)), plan);
    EXPECT_NE(plan::to_string(plan).find("cut own, merge mean, written forward, starts at 0"), std::string::npos);
    const std::vector<train::KeptState> kept = train::kept_states(plan);
    ASSERT_EQ(kept.size(), 2u * kLayers);
    EXPECT_EQ(kept[0].name, "layers.0.error");
    EXPECT_EQ(kept[1].name, "layers.0.mean");
  });
}

}  // namespace
}  // namespace plimsoll::ranks
