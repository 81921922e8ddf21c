// What a new user does first: a tokenizer of one's own, a run folder that moves, data in folders, a run from a pipe, words on the way.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

const std::filesystem::path kTokenizers = PLIMSOLL_SOURCE_DIR "/tests/formats_tokenizer/golden";

constexpr std::string_view kRun = R"({
  "model": {"family": "FAMILY", "layers": 1, "width": 16, "heads": 2, "context": 32},
  "data": {"train": "train.txt", "valid": "valid.txt", "tokenizer": "my.tokenizer"},
  "batch": {"global": 4, "sequence": 16},
  "steps": 4,
  "threads": 1,
  "out": "out"
})";

class FirstRun : public testing::Test {
 protected:
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
  static void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "expected: " << part << "\nin:\n" << text;
  }

  // A run of a family with one of the golden tokenizers, under a name that no model folder has for it.
  void write_run(const std::string& family, const std::filesystem::path& tokenizer) {
    std::string text(kRun);
    folder_.write("run.json", text.replace(text.find("FAMILY"), 6, family));
    std::filesystem::copy_file(kTokenizers / tokenizer, folder_.path("my.tokenizer"), std::filesystem::copy_options::overwrite_existing);
  }

  base::Json settings(const std::string& name) { return base::parse_json(folder_.read(name), name); }

  RunFolder folder_;
};

TEST_F(FirstRun, TheTokenizerSaysHowLargeTheVocabularyIs) {
  write_run("llama", "gpt2/tokenizer.json");
  const base::Json explained = json({"explain", "run.json", "--json"});
  EXPECT_EQ(explained.at("model.vocab").at("value").as_integer(), 420);
  EXPECT_EQ(explained.at("model.vocab").at("origin").as_string(), "tokenizer my.tokenizer");
  output({"train", "run.json"});
  EXPECT_EQ(settings("out/run.json").at("model").at("vocab").as_integer(), 420);
  expect_refusal({"train", "run.json", "--set", "model.vocab=300"}, {"300", "\"model.vocab\"", "420 tokens"});
  const Ended larger = folder_.plimsoll({"train", "run.json", "--set", "model.vocab=500", "--set", "out=larger"});
  EXPECT_EQ(larger.exit_code, 0) << larger.err;
  expect_parts(larger.err, {"model.vocab = 500", "420 tokens", "80 rows"});
}

TEST_F(FirstRun, TheTokenizerSaysWhichTokenMasks) {
  write_run("bert", "bert-uncased/tokenizer.json");
  const base::Json explained = json({"explain", "run.json", "--json"});
  const base::Json inspected = json({"inspect", "my.tokenizer", "--json"});
  EXPECT_EQ(explained.at("model.vocab").at("value").as_integer(), inspected.at("vocab").as_integer());
  EXPECT_EQ(explained.at("mlm.mask_token").at("origin").as_string(), "tokenizer my.tokenizer");
  EXPECT_NE(explained.at("mlm.mask_token").at("value").as_integer(), 103);
  output({"train", "run.json"});
  // One that has no such token cannot be trained on without being told.
  write_run("bert", "gpt2/tokenizer.json");
  expect_refusal({"train", "run.json", "--set", "out=none"}, {"my.tokenizer", "has no mask token", "mlm.mask_token"});
  output({"train", "run.json", "--set", "out=none", "--set", "mlm.mask_token=5"});
}

// Whatever the tokenizer is and wherever the folder lies, it generates, exports and evaluates what it did before.
TEST_F(FirstRun, AFolderThatMovedIsWhole) {
  for (const char* tokenizer : {"gpt2/tokenizer.json", "spm-bpe/tokenizer.model", "spm-unigram/tokenizer.model", "bytes"}) {
    SCOPED_TRACE(tokenizer);
    for (const char* old : {"out", "moved", "exported"}) std::filesystem::remove_all(folder_.path(old));
    const bool bytes = std::string_view(tokenizer) == "bytes";
    write_run("gpt2", bytes ? "gpt2/tokenizer.json" : tokenizer);
    if (bytes) {
      std::string text = folder_.read("run.json");
      folder_.write("run.json", text.replace(text.find("my.tokenizer"), 12, "bytes"));
    }
    output({"train", "run.json"});
    const std::vector<std::string> words{"--prompt", "the lazy", "--tokens", "6", "--json"};
    const auto generated = [&](const std::string& model) {
      std::vector<std::string> command{"generate", model};
      command.insert(command.end(), words.begin(), words.end());
      return json(command).at("tokens");
    };
    const base::Json before = generated("run.json");
    std::filesystem::create_directories(folder_.path("moved/far"));
    std::filesystem::rename(folder_.path("out"), folder_.path("moved/far/away"));
    std::filesystem::remove(folder_.path("my.tokenizer"));
    EXPECT_EQ(generated("moved/far/away"), before);
    EXPECT_EQ(generated("moved/far/away/checkpoints"), before);
    output({"export", "moved/far/away", "exported"});
    EXPECT_EQ(generated("exported"), before);
    const double loss = json({"eval", "moved/far/away", "--json"}).at("loss").as_double();
    EXPECT_NEAR(json({"eval", "exported", "--data", "valid.txt", "--set", "batch.sequence=16", "--json"}).at("loss").as_double(), loss,
                1e-5);
    EXPECT_TRUE(folder_.exists("exported/tokenizer_config.json"));
    const base::Json eos = settings("exported/config.json").at("eos_token_id");
    const base::Json end =
        json({"inspect", "exported/" + std::string(folder_.exists("exported/tokenizer.json") ? "tokenizer.json" : "tokenizer.model"),
              "--json"})
            .at("end_of_text");
    EXPECT_EQ(eos, end);
    EXPECT_EQ(eos.is_null(), bytes);
    // By these AutoTokenizer and AutoModelForCausalLM choose their classes; tried with transformers 5.23, ids and greedy tokens were equal.
    const base::Json by = settings("exported/tokenizer_config.json");
    const bool sentence_piece = std::string_view(tokenizer).ends_with(".model");
    EXPECT_EQ(by.at("tokenizer_class").as_string(), sentence_piece ? "LlamaTokenizer" : "PreTrainedTokenizerFast");
    EXPECT_EQ(by.find("eos_token") == nullptr, bytes);
    if (!bytes) {
      EXPECT_EQ(by.at("eos_token").as_string(), sentence_piece ? "</s>" : "<|endoftext|>");
    }
    EXPECT_EQ(by.at("model_max_length"), settings("exported/config.json").at("n_positions"));
    EXPECT_EQ(base::write_json(settings("exported/config.json").at("architectures")), R"(["GPT2LMHeadModel"])");
  }
}

TEST_F(FirstRun, ARunOfAModelFolderMovesWithoutIt) {
  write_run("gpt2", "gpt2/tokenizer.json");
  output({"train", "run.json"});
  output({"export", "out", "model"});
  folder_.write("tune.json", R"({"model": {"path": "model"}, "data": {"train": "train.txt", "valid": "valid.txt"},
    "batch": {"global": 4, "sequence": 16}, "steps": 2, "threads": 1, "out": "tuned"})");
  const base::Json explained = json({"explain", "tune.json", "--json"});
  EXPECT_EQ(explained.at("data.tokenizer").at("value").as_string(), "model/tokenizer.json");
  EXPECT_EQ(explained.at("data.tokenizer").at("origin").as_string(), "path model");
  output({"train", "tune.json"});
  EXPECT_EQ(settings("tuned/run.json").at("data").at("tokenizer").as_string(), "model/tokenizer.json");
  const base::Json before = json({"generate", "tune.json", "--prompt", "fox", "--tokens", "5", "--json"}).at("tokens");
  std::filesystem::rename(folder_.path("tuned"), folder_.path("elsewhere"));
  std::filesystem::remove_all(folder_.path("model"));
  EXPECT_EQ(json({"generate", "elsewhere", "--prompt", "fox", "--tokens", "5", "--json"}).at("tokens"), before);
  output({"export", "elsewhere", "again"});
  EXPECT_EQ(json({"generate", "again", "--prompt", "fox", "--tokens", "5", "--json"}).at("tokens"), before);
}

TEST_F(FirstRun, EvalCoversAllUnlessTold) {
  output({"train", "run.json"});  // which evaluates two batches at a time
  const base::Json all = json({"eval", "run.json", "--json"});
  EXPECT_EQ(all.at("tokens").as_integer(), 999);
  EXPECT_EQ(all.at("sequences"), all.at("all_sequences"));
  const base::Json some = json({"eval", "out", "--batches", "3", "--json"});
  EXPECT_EQ(some.at("tokens").as_integer(), 3 * 4 * 16);
  EXPECT_EQ(some.at("sequences").as_integer(), 12);
  EXPECT_EQ(json({"eval", "run.json", "--set", "eval.batches=3", "--json"}).at("loss"), some.at("loss"));
  expect_parts(output({"eval", "out/checkpoints"}), {"over 999 tokens", "all 63 sequences of 16"});
  expect_parts(output({"eval", "out", "--batches", "3"}), {"over 192 tokens", "the first 12 of 63 sequences"});
  EXPECT_EQ(json({"eval", "out", "--data", "train.txt", "--json"}).at("tokens").as_integer(),
            static_cast<std::int64_t>(folder_.read("train.txt").size()) - 1);
}

// Lists, folders and patterns are one row of tokens in one order, and a run goes on in the middle of it.
TEST_F(FirstRun, DataInListsAndFolders) {
  const std::string text = folder_.read("train.txt");
  std::filesystem::create_directories(folder_.path("texts/b"));
  folder_.write("texts/a.txt", text.substr(0, 1000));
  folder_.write("texts/b/x.md", text.substr(1000, 1500));
  folder_.write("texts/c", text.substr(2500));
  folder_.write("texts/.hidden", "never read");
  const auto losses = [&](const std::string& data, const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> command{"train", "run.json", "--set", "data.train=" + data, "--set", "out=" + out};
    command.insert(command.end(), more.begin(), more.end());
    const Ended ended = folder_.plimsoll(command);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return column(folder_.read(out + "/metrics.jsonl"), "loss");
  };
  const auto whole = losses("train.txt", "whole");
  EXPECT_EQ(losses("texts", "folder"), whole);
  EXPECT_EQ(losses("[\"texts/a.txt\", \"texts/b\", \"texts/c\"]", "list"), whole);
  EXPECT_EQ(losses("texts/*", "pattern"), whole);
  EXPECT_NE(losses("[\"texts/c\", \"texts/a.txt\", \"texts/b\"]", "other"), whole);
  losses("texts", "resumed", {"--until", "2"});
  EXPECT_EQ(losses("texts", "resumed"), whole);
  // What was added since is told.
  losses("texts", "grown", {"--until", "2"});
  folder_.write("texts/d.txt", text);
  const Ended grown = folder_.plimsoll({"train", "run.json", "--set", "data.train=texts", "--set", "out=grown"});
  expect_parts(grown.out, {"its data were"});
  // A folder may hold anything, so what is no data is named.
  folder_.write("texts/table.parquet", std::string("PAR1\0\0\0\0", 8));
  const Ended wrong = folder_.plimsoll({"train", "run.json", "--set", "data.train=texts", "--set", "out=wrong"});
  EXPECT_EQ(wrong.exit_code, 2);
  expect_parts(wrong.err, {"table.parquet", "neither text nor a token file"});
  std::filesystem::create_directories(folder_.path("empty"));
  const Ended empty = folder_.plimsoll({"train", "run.json", "--set", "data.train=empty", "--set", "out=wrong"});
  EXPECT_EQ(empty.exit_code, 2);
  expect_parts(empty.err, {"'empty' holds no file"});
  std::filesystem::remove(folder_.path("texts/table.parquet"));
  expect_parts(output({"data", "texts", "--out", "tokens"}), {"4 documents"});
}

TEST_F(FirstRun, FromTheStandardInput) {
  const std::string program = plimsoll_command({}).front();
  const auto losses = [&](const std::string& command, const std::string& out) {
    const Ended ended = Child({"/bin/sh", "-c", fmt::format(fmt::runtime(command), program, out)}, folder_.path()).wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return column(folder_.read(out + "/metrics.jsonl"), "loss");
  };
  const auto whole = losses("{} train run.json --set out={}", "file");
  EXPECT_EQ(losses("cat run.json | {} train - --set out={}", "pipe"), whole);
  EXPECT_EQ(losses("{} train - --set out={} < run.json", "redirected"), whole);
  EXPECT_EQ(losses("cat run.json | {} train - --set out={} --ranks 2 --processes", "processes").size(), whole.size());
  const Ended wrong = Child({"/bin/sh", "-c", "echo '{\"stepz\": 3}' | " + program + " train -"}, folder_.path()).wait();
  EXPECT_EQ(wrong.exit_code, 2);
  expect_parts(wrong.err, {"standard input:1:2", "stepz"});
}

TEST_F(FirstRun, SaysHowMuchThereIsToDoAndWhenItEnds) {
  const std::string said = output({"train", "run.json"});
  expect_parts(said, {"data: 5.39k tokens; 6 steps of 4 x 16 are 384 tokens, 7.1% of the data", "the run ends in about"});
  expect_parts(output({"train", "run.json"}), {"the run is finished: all 6 steps are done", "--fresh"});
  expect_parts(output({"train", "run.json", "--set", "steps=4"}), {"nothing to do", "after step 6", "\"steps\" is 4"});
  expect_parts(output({"train", "run.json", "--set", "steps=900", "--until", "8"}),
               {"resuming after step 6", "the 894 steps left", "10.6 epochs"});
  expect_parts(output({"train", "run.json", "--set", "out=until", "--until", "4"}), {"stopped after step 4, as --until says"});
  expect_parts(output({"train", "run.json", "--set", "out=until", "--until", "4"}), {"nothing to do", "--until is 4"});
}

TEST_F(FirstRun, DataCountsTheTextAndNotItsWrapping) {
  folder_.write("d.jsonl", "{\"id\": 1, \"source\": \"somewhere\", \"text\": \"one\"}\n{\"text\": \"three\\n\", \"more\": [1, 2, 3]}\n");
  const base::Json made = json({"data", "d.jsonl", "--out", "d", "--json"});
  EXPECT_EQ(made.at("bytes").as_integer(), 9);
  EXPECT_EQ(made.at("file_bytes").as_integer(), static_cast<std::int64_t>(folder_.read("d.jsonl").size()));
  expect_parts(output({"data", "d.jsonl", "--out", "e"}), {"9 B of text (in files of"});
}

TEST_F(FirstRun, WrongTokenizersAreNamed) {
  const auto expect = [&](const std::string& file, const std::vector<std::string>& parts) {
    std::vector<std::string> all = parts;
    all.push_back(file);
    expect_refusal({"train", "run.json", "--set", "data.tokenizer=" + file}, all);
  };
  expect("train.txt", {"is a text file", "expected a tokenizer.json"});
  folder_.write("lines.txt", "\n\nsome text that begins with an empty line\n");
  expect("lines.txt", {"is a text file"});
  expect("run.json", {"is a run file"});
  folder_.write("comments.json", "{\"model\": \"gpt2\", // a remark\n \"steps\": 3}");
  expect("comments.json", {"is a run file"});
  folder_.write("merges.txt", "#version: 0.2\na b\n");
  expect("merges.txt", {"merges.txt", "tokenizer.json"});
  folder_.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n");
  expect("vocab.txt", {"a list of tokens"});
  folder_.write("vocab.json", R"({"a": 0, "b": 1})");
  expect("vocab.json", {"without its merges"});
  folder_.write("config.json", R"({"model_type": "gpt2"})");
  expect("config.json", {"the config.json of a model"});
  expect("nowhere.json", {"there is no file"});
  std::filesystem::create_directories(folder_.path("none"));
  expect("none", {"neither a tokenizer.json nor"});
}

TEST_F(FirstRun, WrongWordsAreUnderstood) {
  expect_refusal({"train", "run.json", "--set", "model={\"path\": \"nowhere\"}"}, {"there is no folder 'nowhere'"});
  expect_refusal({"train", "run.json", "--set", "model={\"path\": \"run.json\"}"},
                 {"'run.json' is a file", "expected a Hugging Face folder"});
  expect_refusal({"generate", "run.json", "--max", "30"}, {"unknown option --max", "expected --tokens"});
  expect_refusal({"generate", "run.json", "--max_new_tokens=30"}, {"expected --tokens"});
  expect_refusal({"generate", "run.json", "--temprature", "1"}, {"expected --temperature"});
  expect_refusal({"train", "run.json", "--learning_rate", "1e-3"}, {"expected --set optimizer.lr=VALUE"});
  expect_refusal({"train", "run.json", "--steps", "5"}, {"expected --set steps=VALUE"});
  expect_refusal({"train", "run.json", "--nproc_per_node", "2"}, {"expected --ranks"});
  expect_refusal({"train", "run.json", "--zzzzzz"}, {"unknown option --zzzzzz"});
  const Ended wide = folder_.plimsoll({"plan", "run.json", "--set", "strategy.tensor=16"});
  EXPECT_EQ(wide.exit_code, 3);
  expect_parts(wide.err, {"\"tensor\" is 16", "set \"tensor\" to 2 or less"});
}

}  // namespace
}  // namespace plimsoll::tests
