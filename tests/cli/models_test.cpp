// Model folders in and out: generate from one, and (further below) import, export and inspect.
#include <gtest/gtest.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class Models : public testing::Test {
 protected:
  // A Hugging Face folder of a golden model.
  void copy_golden(const std::string& name, const std::string& to) {
    const std::filesystem::path from = std::filesystem::path(PLIMSOLL_SOURCE_DIR "/tests/golden/data") / name;
    std::filesystem::create_directories(folder_.path(to));
    std::filesystem::copy_file(from / "config.json", folder_.path(to + "/config.json"));
    std::filesystem::copy_file(from / "weights.safetensors", folder_.path(to + "/model.safetensors"));
    golden_ = base::parse_json(read_file(from / "generate.json"), "generate.json");
  }

  std::string output(const std::vector<std::string>& arguments) {
    const Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, 0) << testing::PrintToString(arguments) << "\n" << ended.err;
    return ended.out;
  }
  base::Json json(const std::vector<std::string>& arguments) { return base::parse_json(output(arguments), "output", {.strict = true}); }

  void expect_refusal(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
    const Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, 2) << testing::PrintToString(arguments) << ended.out << ended.err;
    for (const std::string& part : parts) EXPECT_NE(ended.err.find(part), std::string::npos) << part << "\nin: " << ended.err;
  }

  static std::string joined(const base::Json& ids, const std::string& separator) {
    std::string text;
    for (const base::Json& id : ids.as_array()) text += (text.empty() ? "" : separator) + base::write_json(id);
    return text;
  }

  RunFolder folder_;
  base::Json golden_;
};

// ---- generate

TEST_F(Models, GenerateFromAModelFolder) {
  copy_golden("llama-tiny", "model");
  const std::string prompt = joined(golden_.at("prompt"), ",");
  const base::Json found = json({"generate", "model", "--prompt-ids", prompt, "--tokens", "11", "--json", "--set", "threads=2"});
  EXPECT_EQ(base::write_json(found.at("tokens")), base::write_json(golden_.at("tokens")));
  EXPECT_EQ(found.at("prompt_tokens").as_integer(), std::ssize(golden_.at("prompt").as_array()));
  EXPECT_EQ(found.at("context").as_integer(), 16);
  EXPECT_EQ(found.at("stopped").as_string(), "count");
  EXPECT_EQ(output({"generate", "model", "--prompt-ids", prompt, "--tokens", "11"}),
            joined(golden_.at("prompt"), " ") + " " + joined(golden_.at("tokens"), " ") + "\n");
}

TEST_F(Models, GenerateEndsWhereTheTextDoes) {
  copy_golden("llama-tiny", "model");
  const std::int64_t end = golden_.at("tokens").at(4).as_integer();
  base::Json config = base::parse_json(folder_.read("model/config.json"), "config.json");
  for (const base::Json& eos : {base::Json(end), base::Json::array({base::Json(60), base::Json(end)})}) {
    config.set("eos_token_id", eos);
    folder_.write("model/config.json", base::write_json(config));
    const std::vector<std::string> command{"generate", "model", "--prompt-ids", joined(golden_.at("prompt"), ","),
                                           "--tokens", "11",    "--json"};
    const base::Json found = json(command);
    EXPECT_EQ(found.at("stopped").as_string(), "end");
    EXPECT_LE(found.at("tokens").size(), 4u);
    std::vector<std::string> on = command;
    on.push_back("--ignore-end");
    EXPECT_EQ(json(on).at("tokens").size(), 11u);
  }
}

TEST_F(Models, GenerateGoesOnBehindTheContext) {
  copy_golden("gpt2-tiny", "model");
  const Ended ended = folder_.plimsoll({"generate", "model", "--prompt-ids", "1,2,3", "--tokens", "40", "--json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(base::parse_json(ended.out, "output").at("tokens").size(), 40u);
  EXPECT_NE(ended.err.find("context of 16 tokens"), std::string::npos) << ended.err;
}

TEST_F(Models, GenerateDrawsBySeed) {
  copy_golden("gpt2-tiny", "model");
  const auto drawn = [&](const std::string& seed) {
    return output({"generate", "model", "--prompt-ids", "1", "--tokens", "12", "--temperature", "2", "--top-k", "50", "--top-p", "0.99",
                   "--seed", seed});
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
}

TEST_F(Models, GenerateRefusals) {
  copy_golden("gpt2-tiny", "model");
  expect_refusal({"generate", "model", "--prompt-ids", "1,61"}, {"token id 61 at position 1", "61 ids"});
  expect_refusal({"generate", "nothing"}, {"nothing", "expected a run file"});
  std::filesystem::create_directories(folder_.path("empty"));
  expect_refusal({"generate", "empty"}, {"empty", "config.json", "manifest.json", "run.json"});
}

}  // namespace
}  // namespace plimsoll::tests
