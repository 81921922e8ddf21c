// Two hundred steps on real text, from the initial weights and batches that PyTorch had.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "base/random.h"
#include "config/config.h"
#include "formats/hf_directory.h"
#include "formats/hf_gather.h"
#include "formats/hf_names.h"
#include "formats/safetensors.h"
#include "golden/test_device.h"
#include "io/posix_file_system.h"
#include "train/stored/weights.h"
#include "train/trainer.h"

namespace plimsoll {
namespace {

const std::string kFolder = PLIMSOLL_SOURCE_DIR "/tests/golden/data/curve";

class Silent final : public observe::Observer {
 public:
  void on(const observe::Event&) override {}
};

// The rule of the reference: drawn by transformers' name and layout; norms one, biases zero.
std::vector<float> drawn(const formats::HfPart& part, std::uint64_t seed, double layers) {
  std::int64_t count = 1;
  for (std::int64_t extent : part.shape) count *= extent;
  std::vector<float> values(static_cast<std::size_t>(count), 0.0f);
  if (part.name.ends_with(".bias")) return values;
  if (part.shape.size() == 1) {
    values.assign(values.size(), 1.0f);
    return values;
  }
  const double std = part.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(2.0 * layers) : 0.02;
  const base::RandomKey key = base::random_key(seed, base::hash_name(part.name));
  for (std::size_t index = 0; index < values.size(); ++index) {
    const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(index / 4), 0, 0, 0}, key);
    const std::size_t pair = index % 4 / 2 * 2;
    values[index] = static_cast<float>(std) * base::normal_from_bits(bits[pair], bits[pair + 1])[index % 2];
  }
  return values;
}

void start_as_pytorch(train::Session& session, const config::Run& run) {
  const formats::HfNames names = formats::hf_names(run.model);
  train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> out) {
    for (const formats::HfTensor& tensor : names.tensors) {
      if (tensor.name != info.name) continue;
      for (const formats::HfPart& part : tensor.parts) {
        const std::vector<float> values = drawn(part, static_cast<std::uint64_t>(run.seed), static_cast<double>(run.model.layers));
        formats::TensorView view;
        view.name = part.name;
        view.shape = part.shape;
        view.data = std::as_bytes(std::span(values));
        formats::gather_part(part, view, {row, info.shape.elements() / info.shape[0]}, out);
      }
    }
  });
}

double last_loss(const std::string& precision, std::vector<double>* all = nullptr) {
  io::PosixFileSystem files;
  Silent silent;
  const observe::SystemClock clock;
  const std::atomic<bool> stop{false};
  const config::Run run = config::load_run(
      kFolder + "/run.json", on_test_device({"data.train=\"" + kFolder + "/corpus.txt\"", "precision=" + precision, "threads=2"}));
  train::Trainer trainer(run, {.file_system = files, .observer = silent, .clock = clock, .stop_wanted = stop});
  start_as_pytorch(trainer.session(), run);
  double mean = 0.0;
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    const observe::StepDone done = trainer.round().back();
    if (all != nullptr) all->push_back(done.loss);
    if (step > run.steps - 10) mean += done.loss / 10.0;
  }
  return mean;
}

TEST(Curve, ReachesThePytorchLoss) {
  io::PosixFileSystem files;
  const std::vector<float> expected = formats::to_f32(formats::Safetensors::open(files, kFolder + "/expect.safetensors").at("losses"));
  std::vector<double> losses;
  const double f32 = last_loss("f32", &losses);
  ASSERT_EQ(losses.size(), expected.size());
  EXPECT_NEAR(losses.front(), expected.front(), 1e-4);
  EXPECT_NEAR(losses.back(), expected.back(), 0.01 * expected.back());
  EXPECT_NEAR(last_loss("bf16"), f32, 0.01 * f32);
  EXPECT_NEAR(last_loss("fp16"), f32, 0.01 * f32);
}

}  // namespace
}  // namespace plimsoll
