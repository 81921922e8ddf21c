// Input that is wrong: the promised exit code, one paragraph that says what was found and what was expected, and a folder
// that looks as before.
#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

constexpr int kBadInput = 2;
constexpr int kNotLegal = 3;

using Parts = std::vector<std::string>;

class WrongInput : public testing::Test {
 protected:
  // Runs, and expects a refusal whose message holds all `parts`; nothing may be added to the folder.
  void expect_refusal(const std::vector<std::string>& arguments, int exit_code, const Parts& parts) {
    const std::vector<std::string> before = folder_.files();
    const Ended ended = folder_.plimsoll(arguments);
    SCOPED_TRACE(testing::PrintToString(arguments) + "\n" + ended.err);
    EXPECT_EQ(ended.exit_code, exit_code) << "signal " << ended.signal;
    EXPECT_TRUE(ended.err.starts_with("plimsoll: "));
    EXPECT_TRUE(ended.err.ends_with('\n'));
    EXPECT_EQ(ended.err.find("\n\n"), std::string::npos) << "more than one paragraph";
    EXPECT_EQ(ended.err.find('\x1b'), std::string::npos) << "escape codes";
    for (const std::string& part : parts) EXPECT_NE(ended.err.find(part), std::string::npos) << "expected: " << part;
    EXPECT_EQ(folder_.files(), before);
  }

  // A training with one setting changed.
  void expect_refusal_of(const std::string& setting, int exit_code, const Parts& parts) {
    expect_refusal({"train", "run.json", "--set", setting}, exit_code, parts);
  }

  void expect_refusal_of_file(std::string_view text, const Parts& parts) {
    folder_.write("wrong.json", text);
    expect_refusal({"train", "wrong.json"}, kBadInput, parts);
  }

  void train() {
    const Ended ended = folder_.plimsoll({"train", "run.json"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }

  RunFolder folder_;
};

TEST_F(WrongInput, RunFileMissing) {
  for (const char* command : {"train", "plan", "explain", "eval", "generate"}) {
    expect_refusal({command, "none.json"}, kBadInput, {"none.json", "No such file", "expected a run file"});
  }
}

TEST_F(WrongInput, RunFileIsAFolder) { expect_refusal({"train", "."}, kBadInput, {"'.'", "directory", "expected a run file"}); }

TEST_F(WrongInput, RunFileUnreadable) {
  std::filesystem::permissions(folder_.path("run.json"), std::filesystem::perms::none);
  std::vector<std::string> command = plimsoll_command({"train", "run.json"});
  // Root reads every file unless that privilege is taken from it.
  if (::geteuid() == 0) command.insert(command.begin(), {"setpriv", "--bounding-set=-dac_override,-dac_read_search"});
  const Ended ended = Child(command, folder_.path()).wait();
  EXPECT_EQ(ended.exit_code, kBadInput) << ended.err;
  for (const char* part : {"run.json", "Permission denied", "expected a run file"})
    EXPECT_NE(ended.err.find(part), std::string::npos) << ended.err;
  EXPECT_FALSE(folder_.exists("out"));
}

TEST_F(WrongInput, RunFileIsNotJson) {
  expect_refusal_of_file("{\"steps\": 3,\n  \"seed\": @}", {"wrong.json:2:11: found", "expected"});
  expect_refusal_of_file("{\"steps\": 3", {"wrong.json:1:12: found the end of the text", "expected"});
  expect_refusal_of_file("", {"wrong.json:1:1: found", "expected"});
  expect_refusal_of_file("[1, 2]", {"wrong.json:1:1: found an array", "expected an object"});
  expect_refusal_of_file("{\"steps\": 3, \"steps\": 4}", {"wrong.json:1:14", "steps"});
  expect_refusal_of_file(std::string("\0\1\2\3", 4), {"wrong.json:1:1: found", "expected"});
}

TEST_F(WrongInput, UnknownKey) {
  expect_refusal_of_file("{\"stepz\": 3}", {"wrong.json:1:2: found the unknown key \"stepz\"", "did you mean \"steps\"?"});
  expect_refusal_of_file("{\"model\": {\"layrs\": 3}}", {"\"model.layrs\"", "layers"});
}

TEST_F(WrongInput, ValueOutOfRange) {
  expect_refusal_of_file("{\"steps\": -1}", {"wrong.json:1:11: found -1 for \"steps\"", "expected an integer >= 0"});
  expect_refusal_of_file("{\"steps\": 1.5}", {"found 1.5", "expected an integer"});
  expect_refusal_of_file("{\"steps\": 99999999999999999999}", {"1e+20", "expected an integer"});
  expect_refusal_of_file("{\"model\": {\"dropout\": 1.0}}", {"found 1.0", "expected a number >= 0 and < 1"});
  expect_refusal_of_file("{\"optimizer\": {\"type\": \"adan\"}}", {"found \"adan\"", "did you mean \"adam\"?"});
}

TEST_F(WrongInput, ShapesThatDoNotDivide) {
  expect_refusal_of("batch.micro=3", kBadInput, {"batch.global = 4", "3", "multiple", "\"batch.micro\": 2 or 4"});
  expect_refusal_of("model.heads=3", kBadInput, {"16", "3", "expected"});
  expect_refusal_of("batch.sequence=64", kBadInput, {"64", "32", "expected"});
}

TEST_F(WrongInput, RowsOnDiskThatCannotBe) {
  const auto expect = [&](const std::vector<std::string>& settings, int exit_code, const Parts& parts) {
    std::vector<std::string> arguments{"train", "run.json", "--set", "strategy.embedding_rows=disk"};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    expect_refusal(arguments, exit_code, parts);
  };
  const std::string untied = "model.tied=false";
  expect({"model.tied=true", "limits.disk_path=."}, kNotLegal, {"needs all of embed.tokens", "use \"model.tied\": false"});
  expect({untied}, kBadInput, {"the disk tier has no folder", "set \"limits.disk_path\""});
  expect({untied, "limits.disk_path=missing"}, kBadInput, {"'missing' does not exist"});
  expect({untied, "limits.disk_path=.", "limits.disk=4096"}, kNotLegal, {"of the disk", "\"limits.disk\" is 4.00 KiB"});
  expect({untied, "limits.disk_path=.", "strategy.offload.optimizer=host", "strategy.delayed_update=true"}, kNotLegal,
         {"a gradient waits until other rows are there"});
}

TEST_F(WrongInput, SetWithNonsense) {
  expect_refusal_of("nonsense", kBadInput, {"--set nonsense: found no \"=\"", "expected KEY=VALUE"});
  expect_refusal_of("=3", kBadInput, {"--set =3", "expected KEY=VALUE"});
  expect_refusal_of("stepz=3", kBadInput, {"--set stepz=3", "did you mean \"steps\"?"});
  expect_refusal_of("steps=many", kBadInput, {"--set steps=many: found \"many\"", "expected an integer"});
  expect_refusal_of("model.width.x=3", kBadInput, {"\"model.width.x\""});
  expect_refusal_of("optimizer.betas=[0.9", kBadInput, {"optimizer.betas", "expected"});
}

TEST_F(WrongInput, CommandLine) {
  expect_refusal({"trainn", "run.json"}, kBadInput,
                 {"found the unknown command \"trainn\"", "did you mean \"train\"?", "expected one of train, plan"});
  expect_refusal({}, kBadInput, {"subcommand", "required", "--help"});
  expect_refusal({"train"}, kBadInput, {"run is required"});
  expect_refusal({"train", "run.json", "--bogus"}, kBadInput, {"unknown option --bogus"});
  expect_refusal({"generate", "run.json", "--tokens", "0"}, kBadInput, {"--tokens", "0 not in range 1"});
  expect_refusal({"generate", "run.json", "--temperature", "warm"}, kBadInput, {"--temperature", "warm"});
  expect_refusal({"generate", "run.json", "--top-p", "nan"}, kBadInput, {"--top-p", "found nan", "from 0 to 1"});
  expect_refusal({"plan", "run.json", "--largest"}, kBadInput, {"--largest", "give --cluster"});
  expect_refusal({"inspect", ".", "--diff", "run.json"}, kBadInput, {"--diff compares two plans"});
  expect_refusal({"completion", "csh"}, kBadInput, {"csh", "bash"});
}

TEST_F(WrongInput, DataMissing) {
  expect_refusal_of("data.train=none.txt", kBadInput, {"\"data.train\"", "none.txt", "No such file"});
  expect_refusal_of("data.valid=none.txt", kBadInput, {"\"data.valid\"", "none.txt", "No such file"});
  expect_refusal_of("data.train=none-*.bin", kBadInput, {"none-*.bin"});
  expect_refusal_of("data.train=\"\"", kBadInput, {"found no \"data.train\"", "expected"});
}

TEST_F(WrongInput, DataTooShort) {
  folder_.write("empty.txt", "");
  folder_.write("short.txt", "abc");
  expect_refusal_of("data.train=empty.txt", kBadInput, {"empty.txt", "is empty", "expected text"});
  expect_refusal_of("data.train=short.txt", kBadInput, {"short.txt", "has 3 tokens", "one sequence of 16 needs 17"});
}

TEST_F(WrongInput, TokenOutsideTheVocabulary) {
  std::string tokens(2 * 400, '\0');
  tokens[2 * 399] = '\x10';
  tokens[2 * 399 + 1] = '\x27';  // 10000, in the last place
  folder_.write("tokens.bin", tokens);
  expect_refusal_of("data.train=tokens.bin", kBadInput, {"tokens.bin", "token id 10000 at position 399", "256 ids (0 to 255)"});
  expect_refusal_of("data.valid=tokens.bin", kBadInput, {"tokens.bin", "token id 10000 at position 399", "256 ids (0 to 255)"});
  expect_refusal_of("model.vocab=100", kBadInput, {"train.txt", "100 ids (0 to 99)"});
}

TEST_F(WrongInput, TokenFileDamaged) {
  std::string header(1024, '\0');
  const std::int32_t words[] = {20240520, 1, 5000};
  header.replace(0, sizeof words, reinterpret_cast<const char*>(words), sizeof words);
  folder_.write("cut.bin", header + std::string(100, '\0'));
  expect_refusal_of("data.train=cut.bin", kBadInput, {"cut.bin", "5000"});
  expect_refusal({"inspect", "cut.bin"}, kBadInput, {"cut.bin", "5000"});
}

TEST_F(WrongInput, DoesNotFit) {
  const Parts table{"does not fit", "limits.device=1MiB is 1.00 MiB", "too much", "\n  parameter", "\n  state",
                    "\n  gradient", "Use a smaller \"batch.micro\""};
  expect_refusal_of("limits.device=1MiB", kNotLegal, table);
  expect_refusal({"plan", "run.json", "--set", "limits.device=1MiB"}, kNotLegal, table);
  const Ended json = folder_.plimsoll({"plan", "run.json", "--json", "--set", "limits.device=1MiB"});
  const base::Json candidate = base::parse_json(json.out, "plan", {.strict = true}).at("candidates").at(0);
  EXPECT_FALSE(candidate.at("fits").as_bool());
  EXPECT_NE(candidate.at("reason").as_string().find("of 1.00 MiB"), std::string::npos);
}

// An order that was searched for and not found is refused like any other plan: with what is needed where.
TEST_F(WrongInput, NoOrderFits) {
  for (const char* command : {"train", "plan"})
    expect_refusal(
        {command, "run.json", "--set", "limits.device=1MiB", "--set", "strategy.recompute=optimal"}, kNotLegal,
        {"with everything made again that can be", "\n  parameter", "\n  state", "\n  gradient", "Use a smaller \"batch.micro\""});
}

TEST_F(WrongInput, SlowerTiers) {
  const auto refused = [&](std::vector<std::string> settings, int code, const Parts& parts) {
    std::vector<std::string> arguments{"train", "run.json", "--fresh"};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    expect_refusal(arguments, code, parts);
  };
  refused({"strategy.offload.optimizer=disk"}, kBadInput, {"disk tier", "limits.disk_path"});
  refused({"strategy.offload.activations=disk"}, kBadInput, {"disk tier", "limits.disk_path"});
  refused({"strategy.offload.optimizer=disk", "limits.disk_path=nowhere"}, kBadInput, {"'nowhere' does not exist"});
  refused({"strategy.offload.optimizer=disk", "limits.disk_path=run.json"}, kBadInput, {"is not a folder"});
  refused({"strategy.offload.optimizer=disk", "limits.disk_path=/dev/shm"}, kNotLegal, {"/dev/shm", "in memory itself"});
  refused({"strategy.offload.optimizer=disk", "limits.disk_path=.", "limits.disk=1KiB"}, kNotLegal,
          {"of the disk", "\"limits.disk\" is 1.00 KiB", "\n  state"});
  refused({"strategy.offload.optimizer=host", "limits.host=1KiB"}, kNotLegal, {"the host's memory", "\"limits.host\" is 1.00 KiB"});
  refused({"strategy.tile=large"}, kBadInput, {"found \"large\"", "an amount such as"});
  refused({"strategy.tile=-1"}, kBadInput, {"found -1", "an amount such as"});
  refused({"strategy.tile=10"}, kNotLegal, {"\"tile\" is 10 B", "a row of", "use at least that"});
  refused({"strategy.offload.params=host"}, kNotLegal, {"offload.params", "\"host\" for both"});
  refused({"strategy.offload.gradients=disk"}, kNotLegal, {"offload.gradients", "use \"offload.optimizer\": \"disk\" too"});
  refused({"strategy.offload.optimizer=host", "strategy.offload.params={\"host\": 0.5}"}, kNotLegal, {"asks for a part"});
  refused({"strategy.offload.optimizer={\"host\": 0.5}", "strategy.offload.gradients=host"}, kNotLegal, {"leaves a part of the state"});
}

// Before anything is measured.
TEST_F(WrongInput, CalibrationWithoutAFolder) {
  expect_refusal({"calibrate", "--scratch", "/nonexistent"}, kBadInput, {"--scratch", "/nonexistent"});
  expect_refusal({"calibrate", "--out", "/nonexistent/c.json"}, kBadInput, {"--out", "/nonexistent"});
}

TEST_F(WrongInput, NotLegalHere) {
  expect_refusal_of("strategy.pipe=9", kNotLegal, {"makes 9 stages, but the model has", "use at most"});
  expect_refusal_of("device=cuda", kBadInput, {"\"device\" is \"cuda\""});  // then what is missing: the module, a library or a GPU
  expect_refusal({"train", "run.json", "--set", "precision=fp8", "--set", "strategy.tensor=2"}, kNotLegal,
                 {"\"precision\" is \"fp8\"", "use a smaller \"tensor\", or \"bf16\""});
}

TEST_F(WrongInput, Inspect) {
  expect_refusal({"inspect", "none"}, kBadInput, {"none: there is nothing of that name", "expected a plan"});
  expect_refusal({"inspect", "."}, kBadInput, {"folder", "expected"});
  expect_refusal({"inspect", "train.txt"}, kBadInput, {"train.txt"});
  folder_.write("other.json", "{\"a\": 1}");
  expect_refusal({"inspect", "other.json"}, kBadInput, {"other.json:1:1", "\"plimsoll_plan\""});
}

TEST_F(WrongInput, InspectOfADamagedPlan) {
  ASSERT_EQ(folder_.plimsoll({"plan", "run.json", "--out", "plan.json"}).exit_code, 0);
  const std::string plan = folder_.read("plan.json");
  folder_.write("cut.json", plan.substr(0, plan.size() / 2));
  expect_refusal({"inspect", "cut.json"}, kBadInput, {"cut.json:1:", "found", "expected"});
  // Digits here and there: whatever it means there, the answer is a plan or a refusal.
  int refused = 0;
  for (std::size_t at = 0, digits = 0; at < plan.size(); ++at) {
    if (plan[at] < '0' || plan[at] > '9' || ++digits % 400 != 0) continue;
    std::string damaged = plan;
    damaged[at] = damaged[at] == '9' ? '8' : '9';
    folder_.write("damaged.json", damaged);
    const Ended ended = folder_.plimsoll({"inspect", "damaged.json"});
    EXPECT_TRUE(ended.exit_code == 0 || ended.exit_code == kBadInput)
        << "digit at " << at << ": signal " << ended.signal << ", " << ended.err;
    refused += ended.exit_code == kBadInput;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(WrongInput, EvalWithoutData) {
  expect_refusal({"eval", "run.json", "--set", "data.valid=\"\""}, kBadInput, {"found no \"data.valid\"", "expected"});
}

TEST_F(WrongInput, NoCheckpointYet) {
  for (const char* command : {"eval", "generate"}) {
    expect_refusal({command, "run.json"}, kBadInput, {"out/checkpoints", "found no valid checkpoint", "plimsoll train"});
  }
}

TEST_F(WrongInput, PromptOutsideTheVocabulary) {
  expect_refusal({"generate", "run.json", "--prompt", "a\u00e9", "--set", "model.vocab=128"}, kBadInput,
                 {"--prompt", "token id 195 at position 1", "128 ids (0 to 127)"});
}

TEST_F(WrongInput, CheckpointOfAnotherModel) {
  train();
  const std::string metrics = folder_.read("out/metrics.jsonl");
  const std::string run = folder_.read("out/run.json");
  expect_refusal_of("model.width=32", kBadInput,
                    {"out/checkpoints/step-00000006", "belongs to another run", "give this run a folder of its own"});
  expect_refusal_of("seed=7", kBadInput, {"belongs to another run", "seed 1", "seed 7"});
  for (const char* command : {"eval", "generate"}) {
    expect_refusal({command, "run.json", "--set", "model.width=32"}, kBadInput, {"out/checkpoints/step-00000006", "another model"});
  }
  EXPECT_EQ(folder_.read("out/metrics.jsonl"), metrics);
  EXPECT_EQ(folder_.read("out/run.json"), run);
}

TEST_F(WrongInput, AllCheckpointsDamaged) {
  train();
  for (const char* step : {"step-00000004", "step-00000006"}) {
    const std::string name = std::string("out/checkpoints/") + step + "/data-00000.bin";
    std::string data = folder_.read(name);
    data[data.size() / 2] ^= 1;
    folder_.write(name, data);
  }
  expect_refusal({"eval", "run.json"}, kBadInput, {"out/checkpoints", "data-00000.bin"});
}

TEST_F(WrongInput, OutIsAFile) { expect_refusal_of("out=train.txt", kBadInput, {"train.txt", "cannot make the folder"}); }

}  // namespace
}  // namespace plimsoll::tests
