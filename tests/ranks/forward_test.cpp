// Evaluation and text without training, in every layout: the same weights are drawn for all of them, so that losses and tokens are those of
// one rank that has everything on its device.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "io/temporary_folder.h"
#include "plan/verify.h"
#include "plan/waterline.h"
#include "ranks/layouts.h"
#include "strategy/forward.h"
#include "support/refusal.h"
#include "train/generation/generate.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::Strategy;

constexpr std::int64_t kSamples = 8;
constexpr std::int64_t kSlots = 40;

struct Way {
  const char* name;
  void (*set)(Strategy& strategy);
  bool exact = false;  // nothing is summed in another order than on one rank

  Strategy strategy() const { return made(set); }
  static Strategy made(void (*set)(Strategy&)) {
    Strategy strategy;
    set(strategy);
    return strategy;
  }
};

constexpr strategy::TierShare kHost{.host = 1.0};
constexpr strategy::TierShare kDisk{.disk = 1.0};
constexpr base::Bytes kTile{12'000};

void on_mesh(Strategy& strategy, std::int64_t data, std::int64_t tensor, std::int64_t pipe, std::int64_t zero = 0) {
  strategy.data = data;
  strategy.tensor = tensor;
  strategy.pipe = pipe;
  strategy.zero = zero;
}

const Way kWays[] = {
    {"data_2", [](Strategy& s) { s.data = 2; }, true},
    {"data_3", [](Strategy& s) { s.data = 3; }, true},  // batches do not go round
    {"data_2_zero_3", [](Strategy& s) { on_mesh(s, 2, 1, 1, 3); }, true},
    {"data_4_zero_3_groups", [](Strategy& s) { on_mesh(s, 4, 1, 1, 3), s.zero_group = 2; }, true},
    {"tensor_2", [](Strategy& s) { s.tensor = 2; }},
    {"tensor_4", [](Strategy& s) { s.tensor = 4; }},  // llama: two ranks share a key-value head
    {"tensor_2_by_rows", [](Strategy& s) { s.tensor = 2, s.sequence_parallel = true; }},
    {"pipe_2", [](Strategy& s) { s.pipe = 2; }, true},
    {"pipe_4", [](Strategy& s) { s.pipe = 4; }, true},
    {"pipe_6", [](Strategy& s) { s.pipe = 6; }, true},  // embedding and head are places of their own
    {"pipe_2_chunks_2", [](Strategy& s) { s.pipe = 2, s.chunks = 2, s.schedule = "interleaved"; }, true},
    {"pipe_2_without_flush", [](Strategy& s) { s.pipe = 2, s.schedule = "pipedream", s.flush_every = 2; }, true},
    {"pipe_2_tensor_2", [](Strategy& s) { on_mesh(s, 1, 2, 2); }},
    {"pipe_2_tensor_2_by_rows", [](Strategy& s) { on_mesh(s, 1, 2, 2), s.sequence_parallel = true; }},
    {"data_2_pipe_2_zero_3", [](Strategy& s) { on_mesh(s, 2, 1, 2, 3); }, true},
    {"data_2_tensor_2_pipe_2", [](Strategy& s) { on_mesh(s, 2, 2, 2, 1); }},
    {"weights_on_host", [](Strategy& s) { s.offload.params = kHost; }, true},
    {"weights_on_disk", [](Strategy& s) { s.offload.params = kDisk; }, true},
    {"weights_on_disk_pipe_2", [](Strategy& s) { s.pipe = 2, s.offload.params = kDisk; }, true},
    {"shards_on_host", [](Strategy& s) { on_mesh(s, 2, 1, 1, 3), s.offload.params = kHost; }, true},
    {"tiles", [](Strategy& s) { s.tile = kTile; }},
    {"tiles_on_disk", [](Strategy& s) { s.tile = kTile, s.offload.params = kDisk, s.prefetch = 1; }},
    {"tiles_on_disk_tensor_2", [](Strategy& s) { s.tensor = 2, s.tile = kTile, s.offload.params = kDisk; }},
    {"trained_lean",
     [](Strategy& s) {
       s.recompute = strategy::Recompute::full, s.recompute_every = 2, s.carry_update = strategy::CarryUpdate::always;
       s.offload = {.optimizer = kHost, .gradients = kHost, .params = kHost, .activations = kHost};
     },
     true},
};

struct Kind {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
};

model::Model model_of(const Kind& kind) {
  model::Model model = small_model(kind.family);
  model.layers = 4;
  model.context = kSlots;
  model.init_std = 0.3;  // large enough that the likeliest token depends on the text
  return model;
}

train::SessionOptions options_of(const Kind& kind, const Strategy& strategy, const std::string& folder) {
  const Task task{.model = model_of(kind), .precision = kind.precision, .samples = kSamples};
  train::SessionOptions options = options_for(task, {.strategy = strategy::without_training(strategy)});
  options.train = false;
  options.disk_folder = folder;
  return options;
}

// Of all samples, one micro-batch after the other, on whatever ranks.
double loss_of(train::Session& session, std::int64_t turns) {
  const plan::Mesh& mesh = session.plan().mesh;
  const std::int64_t ranks = mesh.extent(ops::Shares::batch, session.rank());
  const std::int64_t place = mesh.place(ops::Shares::batch, session.rank());
  double loss = 0.0;
  for (std::int64_t first = 0; first < kSamples; first += turns * ranks) {
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      const std::int64_t sample = first + turn * ranks + place;
      const auto micro_batch = static_cast<std::int32_t>(turn);
      fill(session, train::kEvaluate, micro_batch, sample, 101, 0);
      if (sample >= kSamples) std::ranges::fill(session.input(train::kEvaluate, "targets", micro_batch), -1);
    }
    loss += session.evaluate();
  }
  return loss;
}

class Forward : public testing::TestWithParam<std::tuple<Kind, Way>> {
 protected:
  static Kind kind() { return std::get<0>(GetParam()); }
  static Way way() { return std::get<1>(GetParam()); }

  // The same on all ranks.
  double loss(const Strategy& strategy) const {
    train::SessionOptions options = options_of(kind(), strategy, folder_.path().string());
    options.evaluation_turns = strategy.pipe > 1 ? 3 : 1;
    std::set<double> losses;
    std::mutex mutex;
    for_each_rank(options, [&](train::Session& session) {
      EXPECT_EQ(plan::problems(session.plan()), std::vector<std::string>{});
      const double loss = loss_of(session, options.evaluation_turns);
      const std::scoped_lock lock(mutex);
      losses.insert(loss);
    });
    EXPECT_EQ(losses.size(), 1u) << "ranks disagree";
    return *losses.begin();
  }

  std::vector<std::int32_t> text(Strategy strategy, std::int64_t tokens, const train::Sampling& sampling = {}) const {
    strategy.sequence_parallel = false;
    train::SessionOptions options = options_of(kind(), strategy, folder_.path().string());
    options.evaluate = false;
    options.decode = train::Decoding{.slots = kSlots, .prompt_rows = 4};
    std::set<std::vector<std::int32_t>> texts;
    std::mutex mutex;
    for_each_rank(options, [&](train::Session& session) {
      EXPECT_EQ(plan::problems(session.plan()), std::vector<std::string>{});
      train::CachedNextToken next(session);
      std::vector<std::int32_t> made;
      train::generate(
          next, {5, 22, 39, 56, 73, 90, 6, 23, 40, 57, 74}, tokens, sampling,
          [&](std::int32_t token) {
            made.push_back(token);
            return true;
          },
          session.world());
      const std::scoped_lock lock(mutex);
      texts.insert(made);
    });
    EXPECT_EQ(texts.size(), 1u) << "ranks disagree";
    return *texts.begin();
  }

 private:
  tests::TemporaryFolder folder_;
};

TEST_P(Forward, LossesAreThoseOfOneRank) {
  const double expected = loss({});
  const double found = loss(way().strategy());
  ASSERT_GT(expected, 1.0);
  // Sums over batches are made of other summands where several batches are one program's.
  const double rounding = way().exact ? 1e-12 : kind().precision == Precision::f32 ? 1e-5 : 2e-2;
  EXPECT_NEAR(found, expected, rounding * expected);
}

TEST_P(Forward, TextIsThatOfOneRank) {
  constexpr std::int64_t kBehindTheEnd = 32;  // of the context
  // Two likely tokens may change places by rounding: what is left to hold is that the ranks write one text, the same again.
  if (kind().precision != Precision::f32 && !way().exact) {
    const std::vector<std::int32_t> written = text(way().strategy(), kBehindTheEnd);
    EXPECT_EQ(written.size(), text({}, kBehindTheEnd).size());
    EXPECT_EQ(text(way().strategy(), kBehindTheEnd), written);
    return;
  }
  const std::vector<std::int32_t> expected = text({}, kBehindTheEnd);
  EXPECT_GT(std::set<std::int32_t>(expected.begin(), expected.end()).size(), 3u) << "the same token always proves nothing";
  EXPECT_EQ(text(way().strategy(), kBehindTheEnd), expected);
  const train::Sampling drawn{.temperature = 1.0, .top_k = 20, .seed = 3};
  EXPECT_EQ(text(way().strategy(), 8, drawn), text({}, 8, drawn));
}

INSTANTIATE_TEST_SUITE_P(Ways, Forward,
                         testing::Combine(testing::Values(Kind{"gpt2"}, Kind{"llama", families::llama()},
                                                          Kind{"gpt2_bf16", families::gpt2(), Precision::bf16}),
                                          testing::ValuesIn(kWays)),
                         [](const auto& each) { return fmt::format("{}_{}", std::get<0>(each.param).name, std::get<1>(each.param).name); });

// A rank's cache is its part of the heads and of the layers.
TEST(ForwardMemory, CachesAreSharedOut) {
  const auto cache = [](const Strategy& strategy) {
    train::SessionOptions options = options_of({"llama", families::llama()}, strategy, "");
    options.evaluate = false;
    options.decode = train::Decoding{.slots = kSlots, .prompt_rows = 4};
    std::int64_t bytes = 0;
    for (const plan::Buffer& buffer : train::plan_session(options).classes.front().buffers)
      bytes += buffer.kind == plan::BufferKind::state ? buffer.bytes.count : 0;
    return bytes;
  };
  const std::int64_t whole = cache({});
  EXPECT_GT(whole, 0);
  EXPECT_EQ(cache(Way::made([](Strategy& s) { s.tensor = 2; })) * 2, whole);
  EXPECT_EQ(cache(Way::made([](Strategy& s) { s.tensor = 4; })) * 2, whole) << "of two key-value heads each of four ranks has one";
  EXPECT_EQ(cache(Way::made([](Strategy& s) { s.pipe = 2; })) * 2, whole);
  EXPECT_EQ(cache(Way::made([](Strategy& s) { on_mesh(s, 1, 2, 2); })) * 4, whole);
}

// Weights that are elsewhere take no room on the device, but for those of the blocks at hand.
TEST(ForwardMemory, WeightsElsewhereLeaveTheDevice) {
  const auto device = [](const Strategy& strategy) {
    train::SessionOptions options = options_of({"gpt2"}, strategy, "");
    const plan::Plan plan = train::plan_session(options);
    return plan::fullest_class(plan).arena[static_cast<std::size_t>(plan::Tier::device)].count;
  };
  const std::int64_t whole = device({});
  EXPECT_LT(device(Way::made([](Strategy& s) { on_mesh(s, 2, 1, 1, 3), s.prefetch = 0; })), whole);
  EXPECT_LT(device(Way::made([](Strategy& s) { s.offload.params = kDisk, s.prefetch = 0; })) * 2, whole);
}

TEST(ForwardLegality, OneTextCannotBeTakenInTurns) {
  const Strategy uneven = Way::made([](Strategy& s) {
    s.pipe = 2, s.partition = strategy::StagePartition::listed;
    s.stages = {{.blocks = 2, .data = 2, .tensor = 1}, {.blocks = 2, .data = 1, .tensor = 1}};
  });
  EXPECT_NO_THROW(strategy::require_legal_without_training(uneven, false));
  const std::string why = tests::refusal([&] { strategy::require_legal_without_training(uneven, true); }, base::ErrorKind::not_legal);
  EXPECT_NE(why.find("a text is one; use \"data\": 1"), std::string::npos) << why;
}

// Without an optimizer there is none to be nearer to the device than the weights.
TEST(ForwardLegality, WeightsMayBeAwayAlone) {
  EXPECT_NO_THROW(strategy::require_legal_without_training(Way::made([](Strategy& s) { s.offload.params = kDisk; }), true));
}

}  // namespace
}  // namespace plimsoll::ranks
