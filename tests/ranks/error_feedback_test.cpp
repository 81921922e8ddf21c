// Error feedback of gradients: against an explicit reference of two ranks, through checkpoints and other numbers of ranks, and in steps
// that are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "checkpoint/load.h"
#include "checkpoint/retention.h"
#include "checkpoint/save.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "ops/step_scalars.h"
#include "ranks/coded.h"
#include "strategy/legality.h"
#include "train/stored/kept_states.h"
#include "train/stored/snapshot.h"

namespace plimsoll::ranks {
namespace {

using base::DType;
using Values = std::vector<float>;

class Remembered : public testing::Test {
 protected:
  using States = std::map<std::string, Values>;
  struct Step {
    std::map<std::string, Values> gradients;  // by parameter, as rank 0 has them summed
    States states;                            // of all ranks, as a checkpoint names them
    double loss = 0.0;
  };

  train::SessionOptions options(const strategy::Strategy& strategy) const {
    Task task = small_task(precision_);
    task.clip = clip_;
    task.gradients = true;
    train::SessionOptions options = options_for(task, {.strategy = strategy, .micro = 2});
    options.micro_batches = 1;
    options.training.accumulates = false;
    options.training.loss_scaling.initial = loss_scale_;
    return options;
  }

  void step(train::Session& session, std::uint32_t number, std::int64_t first) const {
    fill(session, "train", 0, first, small_model(model::Family::llama).vocab, number);
    session.step({.learning_rate = rate_, .step = number, .valid_targets = valid_targets(samples_)});
  }

  static void collect_gradients(train::Session& session, std::map<std::string, Values>& gradients) {
    const auto& buffers = session.executor().rank_class().buffers;
    for (std::uint32_t index = 0; index < buffers.size(); ++index) {
      const plan::Buffer& buffer = buffers[plan::BufferId{index}];
      if (buffer.kind != plan::BufferKind::gradient || buffer.type.dtype != DType::f32) continue;
      const std::string name = buffer.name.text();
      for (const graph::Parameter& parameter : session.graph().parameters) {
        const std::string own = "grad." + parameter.name;
        if (name != own && !name.starts_with(own + ".")) continue;
        Values& values = gradients[parameter.name];
        values.resize(static_cast<std::size_t>(buffer.type.shape.elements()));
        std::memcpy(values.data(), session.executor().host_view(plan::BufferId{index}, plan::Access::read), values.size() * sizeof(float));
      }
    }
  }

  static void collect_states(train::Session& session, States& states) {
    for (const train::HeldPiece& piece : train::held_pieces(session)) {
      if (piece.name.find("error") == std::string::npos || piece.bytes == 0) continue;
      Values& values = states[piece.name];
      values.resize(static_cast<std::size_t>(piece.whole.shape.elements()));
      std::memcpy(reinterpret_cast<std::byte*>(values.data()) + piece.begin, piece.data.data(), piece.data.size());
    }
  }

  // Steps first .. last; a checkpoint before the first is read, and one behind the last is written if told.
  std::vector<Step> run(const strategy::Strategy& strategy, std::uint32_t first, std::uint32_t last, bool saves = false) {
    std::vector<Step> steps(last + 1 - first);
    std::mutex mutex;
    std::vector<checkpoint::Part> parts(static_cast<std::size_t>(strategy.ranks()));
    const checkpoint::SaveRequest request{.identity = {.run = "codecs", .config = "0"}, .step = last, .keep = 9};
    if (saves) checkpoint::begin(files_, folder_.path(), request.step);
    for_each_rank(options(strategy), [&](train::Session& session) {
      io::PosixFileSystem files;
      if (first > 1) {
        train::load_held(files, checkpoint::open(files, folder_.path() / fmt::format("step-{:08}", first - 1)), session);
        session.refresh_weights();
        const std::lock_guard lock(mutex);
        collect_states(session, loaded_);
      }
      for (std::uint32_t number = first; number <= last; ++number) {
        const std::int64_t own = samples_ / strategy.data;
        fill_and_step(session, number, own);
        const std::lock_guard lock(mutex);
        Step& kept = steps[number - first];
        collect_states(session, kept.states);
        if (session.rank() == 0) collect_gradients(session, kept.gradients);
      }
      if (saves) {
        parts[static_cast<std::size_t>(session.rank())] =
            checkpoint::write_part(files, folder_.path(), request, session.rank(), train::sources_of(session, train::own_pieces(session)));
      }
    });
    if (saves) checkpoint::commit(files_, folder_.path(), request, parts);
    return steps;
  }

  void fill_and_step(train::Session& session, std::uint32_t number, std::int64_t own) const {
    const std::int64_t place = session.plan().mesh.place(ops::Axis::data, session.rank());
    step(session, number, place * own);
  }

  // The gradients that the samples of one of `data` ranks make, at weights that stay.
  std::vector<std::map<std::string, Values>> gradients_of_rank(std::int64_t data, std::int64_t rank, std::uint32_t last) {
    std::vector<std::map<std::string, Values>> all;
    train::Session session(options(over(1, 0)));
    for (std::uint32_t number = 1; number <= last; ++number) {
      step(session, number, rank * (samples_ / data));
      collect_gradients(session, all.emplace_back());
    }
    return all;
  }

  model::Precision precision_ = model::Precision::f32;
  double clip_ = 0.0;
  double loss_scale_ = 64.0;
  float rate_ = 0.0f;
  std::int64_t samples_ = 4;
  States loaded_;
  io::PosixFileSystem files_;
  tests::TemporaryFolder folder_;
};

Values coded(const ops::FormInfo& form, const Values& values) {
  Values sent(values.size());
  std::vector<std::uint8_t> stored(static_cast<std::size_t>(form.bytes(std::ssize(values))));
  ops::encode_rows(form, std::ssize(values), values, stored);
  ops::decode_rows(form, std::ssize(values), stored, sent);
  return sent;
}

// Two ranks, written out: what each sends, what each part's owner makes of it, and what both then have.
TEST_F(Remembered, IsWhatAReferenceOfTwoRanksHas) {
  constexpr std::uint32_t kSteps = 4;
  const strategy::Strategy strategy = with(over(2, 0), choice_of("int8"));
  const std::vector<Step> found = run(strategy, 1, kSteps);
  const std::vector<std::vector<std::map<std::string, Values>>> given{gradients_of_rank(2, 0, kSteps), gradients_of_rank(2, 1, kSteps)};
  const ops::FormInfo& form = ops::form_named("int8");
  std::size_t compared = 0;
  for (const auto& [name, first] : given[0][0]) {
    const std::size_t count = first.size();
    const auto unit = static_cast<std::size_t>(2 * ops::kSumBlock);
    if (count < unit) continue;
    const std::size_t padded = (count + unit - 1) / unit * unit;
    std::vector<Values> errors(2, Values(padded, 0.0f));
    Values sum_error(padded, 0.0f);
    std::vector<double> given_sum(count, 0.0), sent_sum(count, 0.0);
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      Values sum(padded, 0.0f);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        Values z(padded, 0.0f);
        for (std::size_t index = 0; index < count; ++index) {
          z[index] = given[rank][step].at(name)[index] + errors[rank][index];
          given_sum[index] += given[rank][step].at(name)[index];
        }
        const Values sent = coded(form, z);
        for (std::size_t index = 0; index < padded; ++index) {
          errors[rank][index] = z[index] - sent[index];
          sum[index] = rank == 0 ? sent[index] : sum[index] + sent[index];
        }
      }
      for (std::size_t index = 0; index < padded; ++index) sum[index] += sum_error[index];
      const Values out = coded(form, sum);
      for (std::size_t index = 0; index < padded; ++index) sum_error[index] = sum[index] - out[index];
      for (std::size_t index = 0; index < count; ++index) sent_sum[index] += out[index];
      const Values expected(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count));
      EXPECT_EQ(found[step].gradients.at(name), expected) << name << " in step " << step + 1;
      for (int rank = 0; rank < 2; ++rank) {
        const Values& kept = found[step].states.at(train::name_of_rank(name + ".sent.error", rank));
        EXPECT_TRUE(std::equal(kept.begin(), kept.end(), errors[static_cast<std::size_t>(rank)].begin())) << name;
      }
      const Values& kept = found[step].states.at(name + ".sent.sum_error");
      EXPECT_TRUE(std::equal(kept.begin(), kept.end(), sum_error.begin())) << name;
    }
    // What came out so far is what went in, less what is still to be sent.
    for (std::size_t index = 0; index < count; ++index) {
      const double left = double{errors[0][index]} + errors[1][index] + sum_error[index];
      EXPECT_NEAR(sent_sum[index], given_sum[index] - left, 1e-5 * (std::abs(given_sum[index]) + 1e-3)) << name;
    }
    ++compared;
  }
  EXPECT_GE(compared, 5u);
}

TEST_F(Remembered, AKilledRunGoesOnToTheBit) {
  rate_ = 1e-2f;
  clip_ = 1.0;
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    const strategy::Strategy strategy = with(over(2, zero), choice_of("int8"));
    const std::vector<Step> whole = run(strategy, 1, 4);
    run(strategy, 1, 2, true);
    const std::vector<Step> resumed = run(strategy, 3, 4);
    EXPECT_FALSE(whole[3].states.empty());
    EXPECT_EQ(resumed[1].states, whole[3].states) << "ZeRO " << zero;
    EXPECT_EQ(resumed[1].gradients, whole[3].gradients) << "ZeRO " << zero;
    checkpoint::discard(files_, folder_.path() / "step-00000002");
  }
}

// Summands: what four ranks have yet to send is what two have, and what eight would have.
TEST_F(Remembered, IsKeptInSumOnAnotherNumberOfRanks) {
  rate_ = 1e-2f;
  const auto total = [](const States& states, const std::string& name) {
    std::vector<double> sum;
    for (int rank = 0; states.contains(train::name_of_rank(name, rank)); ++rank) {
      const Values& values = states.at(train::name_of_rank(name, rank));
      sum.resize(values.size());
      for (std::size_t index = 0; index < values.size(); ++index) sum[index] += values[index];
    }
    return sum;
  };
  for (const std::int64_t zero : {0, 2}) {
    const States four = run(with(over(4, zero), choice_of("int8")), 1, 2, true)[1].states;
    loaded_.clear();
    run(with(over(2, zero), choice_of("int8")), 3, 3);
    std::size_t compared = 0;
    for (const auto& [state, values] : four) {
      if (!state.ends_with("@data.0")) {
        if (state.find("sum_error") == std::string::npos) continue;
        EXPECT_EQ(loaded_.at(state), values) << state;
        continue;
      }
      const std::string plain = state.substr(0, state.find('@'));
      const std::vector<double> before = total(four, plain);
      const std::vector<double> after = total(loaded_, plain);
      for (std::size_t index = 0; index < before.size(); ++index) EXPECT_NEAR(after[index], before[index], 1e-9) << plain;
      EXPECT_TRUE(std::any_of(before.begin(), before.end(), [](double value) { return value != 0.0; })) << plain;
      ++compared;
    }
    EXPECT_GE(compared, 5u);
    checkpoint::discard(files_, folder_.path() / "step-00000002");
  }
}

// Runs go on with other codecs, stages and ranks: what nobody has a use for is left, and what is not there begins at zero.
TEST_F(Remembered, IsLeftWhereNobodyHasAUseForItAndBegunWhereThereIsNone) {
  rate_ = 1e-2f;
  for (const strategy::Strategy& before : {with(over(2, 0), choice_of("int8")), over(2, 0)}) {
    run(before, 1, 2, true);
    for (const strategy::Strategy& after : {over(1, 0), over(2, 1), with(over(2, 2), choice_of("int8")),
                                            with(over(4, 0), choice_of("int8")), with(over(2, 0), choice_of("bf16"))}) {
      SCOPED_TRACE(fmt::format("{}, then {}", strategy::describe(before), strategy::describe(after)));
      EXPECT_FALSE(run(after, 3, 3)[0].gradients.empty());
    }
    checkpoint::discard(files_, folder_.path() / "step-00000002");
  }
}

// A scale beyond fp16 makes the first steps overflow on all ranks.
TEST_F(Remembered, DoesNotChangeInStepsThatAreSkipped) {
  precision_ = model::Precision::fp16;
  rate_ = 1e-2f;
  loss_scale_ = std::ldexp(1.0, 40);
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    const std::vector<Step> steps = run(with(over(2, zero), choice_of("int8")), 1, 1);
    ASSERT_FALSE(steps[0].states.empty());
    for (const auto& [name, values] : steps[0].states)
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float value) { return value == 0.0f; })) << name << ", ZeRO " << zero;
    loss_scale_ = 64.0;
    const std::vector<Step> good = run(with(over(2, zero), choice_of("int8")), 1, 1);
    for (const auto& [name, values] : good[0].states)
      EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float value) { return value != 0.0f; })) << name << ", ZeRO " << zero;
    loss_scale_ = std::ldexp(1.0, 40);
  }
}

}  // namespace
}  // namespace plimsoll::ranks
