// Whole models against PyTorch: logits, loss, every parameter's gradient, and twenty steps of AdamW. README.md says how
// the files were made and what the bar is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "config/config.h"
#include "formats/hf_directory.h"
#include "formats/hf_gather.h"
#include "formats/safetensors.h"
#include "golden/test_device.h"
#include "io/posix_file_system.h"
#include "train/session/session.h"
#include "train/setup/setup.h"
#include "train/stored/weights.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kBatches = 4;
constexpr double kGradientTolerance = 1e-5;
constexpr double kLossTolerance = 1e-4;

float largest(std::span<const float> values) {
  float found = 0.0f;
  for (float value : values) found = std::max(found, std::abs(value));
  return found;
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  float found = 0.0f;
  for (std::size_t index = 0; index < a.size(); ++index) found = std::max(found, std::abs(a[index] - b[index]));
  return found;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  Golden()
      : folder_(std::string(PLIMSOLL_SOURCE_DIR "/tests/golden/data/") + GetParam()),
        run_(config::load_run(folder_ + "/run.json", on_test_device())),
        weights_(formats::HfDirectory::open(files_, folder_, folder_ + "/weights.safetensors")),
        batch_(formats::Safetensors::open(files_, folder_ + "/batch.safetensors")),
        expect_(formats::Safetensors::open(files_, folder_ + "/expect.safetensors")) {}

  train::Session make_session(std::int32_t micro_batches = 1) {
    const bool infers = micro_batches == 1;
    run_.batch.micro = run_.batch.global / micro_batches;
    train::SessionOptions options = train::session_options(run_, {});
    options.training.segmented = batch_.find("segment_ids") != nullptr || batch_.find("attention_mask") != nullptr;
    options.keep_gradients = true;
    options.threads = 2;
    if (infers) options.infer = options.training.micro_batch;
    train::Session session(options);
    train::write_parameters(
        session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> out) { weights_.load(info.name, row, out); });
    return session;
  }

  // Rows of one of the stored batches, as `value` of a micro-batch's inputs.
  void fill(train::Session& session, std::string_view program, std::string_view value, std::string_view stored, std::int64_t batch,
            std::int32_t micro_batches = 1) {
    const std::vector<std::int32_t> all = formats::to_i32(batch_.at(stored));
    const std::size_t per_batch = all.size() / kBatches;
    for (std::int32_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const std::span<std::int32_t> input = session.input(program, value, micro_batch);
      const std::size_t first = static_cast<std::size_t>(batch) * per_batch + static_cast<std::size_t>(micro_batch) * input.size();
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first), input.size(), input.begin());
      // Padding is what our segments call -1.
      if (stored == "attention_mask") std::transform(input.begin(), input.end(), input.begin(), [](std::int32_t mask) { return mask - 1; });
    }
  }

  std::int64_t fill_batch(train::Session& session, std::string_view program, std::int64_t batch, std::int32_t micro_batches = 1) {
    fill(session, program, "tokens", "input_ids", batch, micro_batches);
    fill(session, program, "targets", "labels", batch, micro_batches);
    fill(session, program, "positions", "position_ids", batch, micro_batches);
    if (batch_.find("segment_ids") != nullptr) fill(session, program, "segments", "segment_ids", batch, micro_batches);
    if (batch_.find("attention_mask") != nullptr) fill(session, program, "segments", "attention_mask", batch, micro_batches);
    if (batch_.find("token_type_ids") != nullptr) fill(session, program, "token_types", "token_type_ids", batch, micro_batches);
    const std::vector<std::int32_t> labels = formats::to_i32(batch_.at("labels"));
    const std::size_t per_batch = labels.size() / kBatches;
    const auto first = labels.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(batch) * per_batch);
    return std::count_if(first, first + static_cast<std::ptrdiff_t>(per_batch), [](std::int32_t label) { return label >= 0; });
  }

  // The expected gradient of one of our parameters, gathered as its weights are.
  std::vector<float> expected_gradient(const formats::HfTensor& tensor, std::int64_t elements) {
    std::vector<float> gathered(static_cast<std::size_t>(elements), 0.0f);
    const std::int64_t row_elements = elements / tensor.shape.front();
    for (const formats::HfPart& part : tensor.parts)
      formats::gather_part(part, expect_.at("grad." + part.name), {0, row_elements}, gathered);
    return gathered;
  }

  io::PosixFileSystem files_;
  std::string folder_;
  config::Run run_;
  formats::HfDirectory weights_;
  formats::Safetensors batch_;
  formats::Safetensors expect_;
};

TEST_P(Golden, Logits) {
  train::Session session = make_session();
  fill_batch(session, "infer", 0);
  session.infer();
  const std::span<const float> found = session.buffers().view<float>("infer/logits@0");
  const std::vector<float> expected = formats::to_f32(expect_.at("logits"));
  ASSERT_EQ(found.size(), expected.size());
  const std::size_t vocab = static_cast<std::size_t>(run_.model.vocab);
  std::vector<std::int32_t> mask(expected.size() / vocab, 1);
  if (batch_.find("attention_mask") != nullptr) mask = formats::to_i32(batch_.at("attention_mask"));
  for (std::size_t row = 0; row < expected.size() / vocab; ++row) {
    if (mask[row] == 0) continue;
    EXPECT_LE(largest_difference(found.subspan(row * vocab, vocab), std::span(expected).subspan(row * vocab, vocab)),
              1e-5f * largest(expected))
        << "row " << row;
  }
}

TEST_P(Golden, LossAndGradients) {
  train::Session session = make_session();
  const std::int64_t valid = fill_batch(session, "train", 0);
  const train::StepResult result = session.step({.learning_rate = 0.0f, .step = 1, .valid_targets = valid});
  EXPECT_NEAR(result.loss, formats::to_f32(expect_.at("loss"))[0], 1e-5);
  EXPECT_NEAR(result.gradient_norm, formats::to_f32(expect_.at("grad_norm"))[0], 1e-5 * result.gradient_norm);

  float model_largest = 0.0f;
  for (const formats::TensorView& view : expect_.tensors()) {
    if (view.name.starts_with("grad.")) model_largest = std::max(model_largest, largest(formats::to_f32(view)));
  }
  for (const formats::HfTensor& tensor : weights_.tensors()) {
    const std::vector<float> found = train::read_gradient(session, tensor.name);
    const std::vector<float> expected = expected_gradient(tensor, static_cast<std::int64_t>(found.size()));
    const double bound = kGradientTolerance * std::max(largest(expected), 1e-3f * model_largest);
    EXPECT_LE(largest_difference(found, expected), bound) << tensor.name;
  }
}

TEST_P(Golden, TwentySteps) {
  train::Session session = make_session();
  const std::vector<float> losses = formats::to_f32(expect_.at("losses"));
  const std::vector<float> norms = formats::to_f32(expect_.at("grad_norm"));
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const std::int64_t valid = fill_batch(session, "train", static_cast<std::int64_t>(step) % kBatches);
    const train::StepResult result =
        session.step({.learning_rate = static_cast<float>(run_.lr), .step = static_cast<std::uint32_t>(step + 1), .valid_targets = valid});
    ASSERT_NEAR(result.loss, losses[step], kLossTolerance) << "step " << step;
    ASSERT_NEAR(result.gradient_norm, norms[step], 1e-3 * norms[step]) << "step " << step;
  }
}

// Micro-batches change nothing but rounding, although their rows have different numbers of valid targets.
TEST_P(Golden, TwentyStepsInMicroBatches) {
  const auto micro_batches = static_cast<std::int32_t>(run_.batch.global);
  train::Session session = make_session(micro_batches);
  const std::vector<float> losses = formats::to_f32(expect_.at("losses"));
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const std::int64_t valid = fill_batch(session, "train", static_cast<std::int64_t>(step) % kBatches, micro_batches);
    const train::StepResult result =
        session.step({.learning_rate = static_cast<float>(run_.lr), .step = static_cast<std::uint32_t>(step + 1), .valid_targets = valid});
    ASSERT_NEAR(result.loss, losses[step], kLossTolerance) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         testing::Values("gpt2-tiny", "gpt2-untied-odd", "gpt2-packed", "llama-tiny", "llama-tied-llama3rope",
                                         "llama-linearrope", "llama-packed", "qwen2-tiny", "llama-bias", "qwen3-tiny", "mistral-window",
                                         "bert-tiny"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace plimsoll
