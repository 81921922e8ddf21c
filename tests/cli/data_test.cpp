// `plimsoll data`, `inspect` of what it makes, and training on text through a tokenizer.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/formats_tokenizer/golden";

class DataCommand : public testing::Test {
 protected:
  DataCommand() {
    for (const char* name : {"gpt2", "llama3"})
      std::filesystem::copy_file(kGolden / name / "tokenizer.json", folder_.path(std::string(name) + ".json"));
    std::filesystem::copy_file(kGolden / "spm-bpe" / "tokenizer.model", folder_.path("spm.model"));
  }

  Ended run(const std::vector<std::string>& arguments, int exit_code = 0) {
    Ended ended = folder_.plimsoll(arguments);
    EXPECT_EQ(ended.exit_code, exit_code) << testing::PrintToString(arguments) << "\n" << ended.err;
    return ended;
  }
  base::Json json(const std::vector<std::string>& arguments) { return base::parse_json(run(arguments).out, "output"); }

  RunFolder folder_;
};

// While text is read and encoded too, the process takes no more than it says: 16 million tokens in two bytes each, and one for the byte
// of a text that is mapped.
TEST_F(DataCommand, ReadingTextStaysWithinTheLimit) {
  constexpr std::int64_t kBytes = std::int64_t{16} << 20;
  std::string text;
  for (std::int64_t at = 0; at < kBytes; ++at) text += static_cast<char>('a' + (at * at / 7) % 23);
  folder_.write("large.txt", text);
  std::string vocab;
  for (int id = 0; id < 300; ++id)
    vocab += fmt::format(R"({}"{}": {})", id == 0 ? "" : ", ",
                         id < 26 ? std::string(1, static_cast<char>('a' + id)) : fmt::format("<{}>", id), id);
  folder_.write("letters.json", R"({"model": {"type": "BPE", "vocab": {)" + vocab + R"(}, "merges": []}})");
  for (const auto& [tokenizer, mebibytes] : {std::pair{"letters.json", 72}, {"bytes", 40}}) {
    const std::string out = fmt::format("out=of-{}", mebibytes);
    const Ended ended = run({"train", "run.json", "--set", "data.train=large.txt", "--set", "data.valid=", "--set",
                             fmt::format("data.tokenizer={}", tokenizer), "--set", "model.vocab=300", "--set", "steps=2", "--set", out,
                             "--set", fmt::format("limits.device={}MiB", mebibytes)});
    EXPECT_NE(ended.out.find("16.8M tokens"), std::string::npos) << ended.out;
    EXPECT_LE(ended.most_resident, std::int64_t{mebibytes} << 20) << tokenizer << ended.out;
  }
}

TEST_F(DataCommand, MakesTokensThatInspectAndTrainRead) {
  for (const char* format : {"llmc", "nanogpt", "megatron"}) {
    const std::string name = std::string("shards/") + format;
    const base::Json made = json({"data", "train.txt", "--tokenizer", "gpt2.json", "--format", format, "--out", name, "--json"});
    EXPECT_GT(made.at("tokens").as_integer(), 100);
    EXPECT_EQ(made.at("documents").as_integer(), 1);
    const base::Json seen = json({"inspect", name + ".bin", "--json"});
    EXPECT_EQ(seen.at("tokens").as_integer(), made.at("tokens").as_integer());
    EXPECT_LT(seen.at("largest_id").as_integer(), 420);
    run({"train", "run.json", "--set", "data.train=" + name + ".bin", "--set", "data.valid=" + name + ".bin", "--set", "model.vocab=420",
         "--set", std::string("out=out-") + format, "--set", "steps=2"});
  }
}

TEST_F(DataCommand, TextThroughATokenizerIsWhatItsTokensAre) {
  run({"data", "train.txt", "--tokenizer", "gpt2.json", "--end-token", "none", "--out", "train"});
  const auto losses = [&](const std::string& data, const std::string& out) {
    run({"train", "run.json", "--set", "data.train=" + data, "--set", "data.valid=", "--set", "data.tokenizer=gpt2.json", "--set",
         "model.vocab=420", "--set", "out=" + out});
    return column(folder_.read(out + "/metrics.jsonl"), "loss");
  };
  const std::vector<std::string> from_text = losses("train.txt", "a");
  EXPECT_EQ(from_text.size(), 6u);
  EXPECT_EQ(from_text, losses("train.bin", "b"));
}

TEST_F(DataCommand, GenerateAndEvalSpeakTheTokenizersLanguage) {
  const std::vector<std::string> settings{"--set", "data.tokenizer=spm.model", "--set", "model.vocab=1000"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    return run(arguments);
  };
  with({"train", "run.json"});
  EXPECT_NE(with({"eval", "run.json"}).out.find("loss"), std::string::npos);
  const Ended text = with({"generate", "run.json", "--prompt", "don't", "--tokens", "8"});
  EXPECT_TRUE(text.out.starts_with("don't")) << text.out;
}

TEST_F(DataCommand, DocumentsAreEndedAndCounted) {
  folder_.write("d.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"three\"}\n");
  const base::Json made = json({"data", "d.jsonl", "--tokenizer", "gpt2.json", "--format", "megatron", "--out", "d", "--json"});
  EXPECT_EQ(made.at("documents").as_integer(), 3);
  EXPECT_EQ(json({"inspect", "d.idx", "--json"}).at("documents").as_integer(), 3);
  const base::Json without = json({"data", "d.jsonl", "--tokenizer", "gpt2.json", "--end-token", "none", "--out", "e", "--json"});
  EXPECT_EQ(without.at("tokens").as_integer() + 3, made.at("tokens").as_integer());
}

TEST_F(DataCommand, InspectsTokenizers) {
  EXPECT_EQ(json({"inspect", "gpt2.json", "--json"}).at("vocab").as_integer(), 420);
  EXPECT_EQ(json({"inspect", "spm.model", "--json"}).at("end_of_text").as_integer(), 2);
  EXPECT_NE(run({"inspect", "llama3.json"}).out.find("put before a text: [0]"), std::string::npos);
}

TEST_F(DataCommand, WrongInputIsRefusedAndLeavesNothing) {
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const std::vector<std::string> before = folder_.files();
    const Ended ended = run(arguments, 2);
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
    EXPECT_EQ(folder_.files(), before);
  };
  refused({"data", "none.txt", "--out", "x"}, "none.txt");
  refused({"data", "train.txt", "--out", "x", "--tokenizer", "train.txt"}, "train.txt");
  refused({"data", "train.txt", "--out", "x", "--tokenizer", "run.json"}, "run.json");
  refused({"data", "train.txt", "--out", "x", "--end-token", "<|no such|>"}, "--end-token");
  folder_.write("bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": 1}\n");
  refused({"data", "bad.jsonl", "--out", "x"}, "bad.jsonl:2");
  run({"data", "train.txt", "--out", "once"});
  refused({"data", "train.txt", "--out", "once"}, "--force");
  refused({"data", "once.bin", "--out", "x"}, "tokens already");
  refused({"train", "run.json", "--set", "data.tokenizer=gpt2.json"}, "420");  // the model has 256
}

}  // namespace
}  // namespace plimsoll::tests
