// Greedy text of small models, with the cache and without, against what transformers makes (tools/golden/generate.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "config/config.h"
#include "formats/hf_directory.h"
#include "golden/test_device.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "train/generation/generate.h"
#include "train/setup/setup.h"
#include "train/stored/weights.h"

namespace plimsoll {
namespace {

std::vector<std::int32_t> ids_of(const base::Json& list) {
  std::vector<std::int32_t> ids;
  for (const base::Json& id : list.as_array()) ids.push_back(static_cast<std::int32_t>(id.as_integer()));
  return ids;
}

class GoldenText : public testing::TestWithParam<const char*> {};

TEST_P(GoldenText, IsThatOfTransformers) {
  io::PosixFileSystem files;
  const std::string folder = std::string(PLIMSOLL_SOURCE_DIR "/tests/golden/data/") + GetParam();
  const config::Run run = config::load_run(folder + "/run.json", on_test_device());
  const formats::HfDirectory weights = formats::HfDirectory::open(files, folder, folder + "/weights.safetensors");
  const base::Json stored = base::parse_json(io::read_text(files, folder + "/generate.json"), "generate.json");
  const std::vector<std::int32_t> prompt = ids_of(stored.at("prompt"));
  const std::vector<std::int32_t> expected = ids_of(stored.at("tokens"));

  train::SessionOptions options = train::session_options(run, {.train = false});
  options.training.segmented = false;
  options.threads = 2;
  const auto length = static_cast<std::int64_t>(prompt.size() + expected.size());
  options.infer = model::MicroBatch{1, length};
  options.decode = train::Decoding{.slots = length, .prompt_rows = 4};
  train::Session session(options);
  train::write_parameters(
      session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> out) { weights.load(info.name, row, out); });

  train::CachedNextToken cached(session);
  train::WholeNextToken whole(session);
  for (train::NextToken* next : std::initializer_list<train::NextToken*>{&cached, &whole}) {
    std::vector<std::int32_t> found;
    train::generate(*next, prompt, std::ssize(expected), {}, [&](std::int32_t token) {
      found.push_back(token);
      return true;
    });
    EXPECT_EQ(found, expected) << (next == &cached ? "with" : "without") << " the cache";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenText,
                         testing::Values("gpt2-tiny", "gpt2-untied-odd", "gpt2-packed", "llama-tiny", "llama-tied-llama3rope",
                                         "llama-linearrope", "llama-packed", "qwen2-tiny", "llama-bias", "qwen3-tiny", "mistral-window"),
                         [](const auto& each) {
                           std::string name = each.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace plimsoll
