// The equality matrix: the corpus's cases for the processor, trained for a few steps on thread ranks. Losses, the evaluation afterwards
// and every bit of the weights are those that were stored.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/random.h"
#include "collectives/local/threads.h"
#include "corpus/cases.h"
#include "corpus/stored.h"
#include "io/temporary_folder.h"
#include "train/stored/weights.h"

namespace plimsoll::corpus {
namespace {

constexpr const char* kHead = "name, then the losses of the steps, the sum of losses of an evaluation, FNV-1a of the weights";
constexpr std::int64_t kSteps = 4;  // what flushes of all layouts divide
constexpr float kLearningRate = 1e-2f;

// One place of a sample, the same for every layout: it depends on the sample's number in the step and on the step alone.
struct Token {
  std::int64_t sample = 0;
  std::int64_t place = 0;
  std::int64_t step = 0;

  bool valid() const { return (sample + place) % 5 != 4; }
  std::int64_t id(std::int64_t vocab) const { return (sample * 31 + place * (7 + sample % 3) + step) % vocab; }
  std::int64_t target(std::int64_t vocab) const { return valid() ? (id(vocab) * 3 + 7) % vocab : -1; }
};

std::int64_t valid_targets(const config::Run& run) {
  std::int64_t valid = 0;
  for (std::int64_t sample = 0; sample < run.batch.global; ++sample) {
    for (std::int64_t place = 0; place < run.batch.sequence; ++place) valid += Token{sample, place}.valid() ? 1 : 0;
  }
  return valid;
}

// The inputs of a micro-batch that starts at a sample. A stage of a pipeline reads some of them.
void fill(train::Session& session, std::string_view program, std::int32_t micro_batch, const config::Run& run, const Token& first) {
  const auto each = [&](std::string_view name, const auto& value_of) {
    const std::span<std::int32_t> input = session.input(program, name, micro_batch);
    for (std::size_t index = 0; index < input.size(); ++index) {
      const auto at = static_cast<std::int64_t>(index);
      const Token token{first.sample + at / run.batch.sequence, at % run.batch.sequence, first.step};
      input[index] = static_cast<std::int32_t>(value_of(token));
    }
  };
  const std::int64_t half = run.batch.sequence / 2;
  each("tokens", [&](const Token& token) { return token.id(run.model.vocab); });
  each("targets", [&](const Token& token) { return token.target(run.model.vocab); });
  each("positions", [&](const Token& token) { return run.data.mask_documents ? token.place % half : token.place; });
  each("segments", [&](const Token& token) { return run.data.mask_documents ? token.place / half : 0; });
  each("token_types", [&](const Token& token) { return token.place % 2; });
  const std::span<std::int32_t> samples = session.input(program, "samples", micro_batch);
  for (std::size_t index = 0; index < samples.size(); ++index)
    samples[index] = static_cast<std::int32_t>(first.sample) + static_cast<std::int32_t>(index);
}

struct Result {
  std::string losses;
  std::string weights;  // as the first rank has them: another may lack what it never computes with
};

// What a rank works on, sample after sample.
class RankRun {
 public:
  RankRun(const config::Run& run, const train::SessionOptions& options) : run_(run), session_(options) {
    const plan::Mesh& mesh = session_.plan().mesh;
    // Stages with degrees of their own go through all samples as one pipeline.
    const std::int64_t data_place = mesh.even() ? mesh.place(ops::Axis::data, session_.rank()) : 0;
    first_sample_ = data_place * run.micro_batches() * run.batch.micro;
  }

  Result result() {
    std::string text;
    for (std::int64_t step = 1; step <= kSteps; step += run_.strategy.flush_every) {
      for (const train::StepResult& result : train_round(step)) text += fmt::format("{:a} ", result.loss);
    }
    text += fmt::format("{:a}", evaluate());
    return {text, fmt::format("{:016x}", weights_hash())};
  }

 private:
  Token first_of(std::int64_t micro_batch, std::int64_t step) const {
    return {.sample = first_sample_ + micro_batch * run_.batch.micro, .place = 0, .step = step};
  }

  // Until the next flush.
  std::vector<train::StepResult> train_round(std::int64_t first_step) {
    std::vector<train::StepInputs> inputs;
    for (std::int64_t step = 0; step < run_.strategy.flush_every; ++step) {
      for (std::int64_t micro_batch = 0; micro_batch < run_.micro_batches(); ++micro_batch) {
        const auto input = static_cast<std::int32_t>(step * run_.micro_batches() + micro_batch);
        fill(session_, "train", input, run_, first_of(micro_batch, first_step + step));
      }
      inputs.push_back(
          {.learning_rate = kLearningRate, .step = static_cast<std::uint32_t>(first_step + step), .valid_targets = valid_targets(run_)});
    }
    return session_.steps(inputs);
  }

  double evaluate() {
    double sum = 0.0;
    const std::int64_t turn = run_.strategy.turn();
    for (std::int64_t batch = 0; batch < run_.micro_batches(); batch += turn) {
      for (std::int64_t place = 0; place < turn; ++place)
        fill(session_, "evaluate", static_cast<std::int32_t>(place), run_, first_of(batch + place, 0));
      sum += session_.evaluate();
    }
    return sum;
  }

  std::uint64_t weights_hash() {
    std::string bytes;
    for (const train::ParameterInfo& info : train::parameters_of(session_)) {
      const std::vector<float> values = train::read_parameter(session_, info.name);
      bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    return base::hash_name(bytes);
  }

  const config::Run& run_;
  train::Session session_;
  std::int64_t first_sample_ = 0;
};

std::string train_case(const Case& one) {
  const config::Run run = run_of(one);
  const tests::TemporaryFolder disk;
  train::SessionOptions options = options_of(one, run);
  options.disk_folder = disk.path().string();
  options.threads = 1;
  std::vector<Result> results(static_cast<std::size_t>(run.strategy.ranks()));
  if (results.size() == 1) {
    results.front() = RankRun(run, options).result();
  } else {
    collectives::local::run_threads(static_cast<int>(results.size()), [&](collectives::Transport& transport) {
      train::SessionOptions own = options;
      own.transport = &transport;
      results[static_cast<std::size_t>(transport.rank())] = RankRun(run, own).result();
    });
  }
  for (const Result& result : results) EXPECT_EQ(result.losses, results.front().losses) << one.name << ": ranks disagree";
  return fmt::format("{} {}", results.front().losses, results.front().weights);
}

bool is_refused(const Case& one) {
  try {
    plan_of(one);
    return false;
  } catch (const base::Error&) {
    return true;
  }
}

void compare(const std::string& file, bool eight_bits) {
  if (!PLIMSOLL_SAME_ARITHMETIC) GTEST_SKIP() << "another compiler, optimisation or library than the stored losses come from";
  std::vector<Line> lines;
  for (const Case& one : cases()) {
    if (!one.trained || is_refused(one)) continue;
    if ((run_of(one).precision == model::Precision::fp8) == eight_bits) lines.push_back({one.name, train_case(one)});
  }
  const std::string found = differences(file, kHead, lines);
  EXPECT_TRUE(found.empty()) << found;
}

TEST(Losses, AreThoseOfTheCorpus) { compare("losses.txt", false); }

// 8-bit products are a reference in double on the processor: minutes.
TEST(Losses, DISABLED_OfEightBitsAreThoseOfTheCorpus) { compare("losses_fp8.txt", true); }

}  // namespace
}  // namespace plimsoll::corpus
