// Where values came from, and the resolved run file.
#include <gtest/gtest.h>

#include "config/config.h"
#include "config/message.h"

namespace plimsoll::config {
namespace {

constexpr std::string_view kFile = R"({
  "model": {"preset": "gpt2", "heads": 8, "dropout": 0.1},
  "batch": {"global": 16},
  "strategy": {"data": 2, "stages": [{"blocks": 6, "tensor": 2}, 6]},
  "limits": {"host": "16GiB"}
})";

std::string line_of(const std::string& text, std::string_view key) {
  const std::size_t start = text.find(fmt::format("\n{} ", key)) + 1;
  return text.substr(start, text.find('\n', start) - start);
}

std::string words(std::string_view line) {
  std::string out;
  for (const char c : line) {
    if (c != ' ' || out.empty() || out.back() != ' ') out += c;
  }
  return out;
}

TEST(Explain, EveryOrigin) {
  const std::string text = "\n" + explain(parse_run(kFile, "run.json", {"steps=5"}));
  EXPECT_EQ(words(line_of(text, "model.preset")), "model.preset gpt2 run.json:2:23");
  EXPECT_EQ(words(line_of(text, "model.layers")), "model.layers 12 preset gpt2");
  EXPECT_EQ(words(line_of(text, "model.heads")), "model.heads 8 run.json:2:40");
  EXPECT_EQ(words(line_of(text, "model.head_dim")), "model.head_dim 96 derived: width / heads");
  EXPECT_EQ(words(line_of(text, "model.attention_dropout")), "model.attention_dropout 0.1 derived: dropout");
  EXPECT_EQ(words(line_of(text, "batch.micro")), "batch.micro 8 derived: batch.global / strategy.data");
  EXPECT_EQ(words(line_of(text, "steps")), "steps 5 --set steps=5");
  EXPECT_EQ(words(line_of(text, "seed")), "seed 1 default");
  EXPECT_EQ(words(line_of(text, "limits.host")), "limits.host 16GiB run.json:5:22");
  EXPECT_EQ(words(line_of(text, "data.train")), "data.train \"\" default");
  EXPECT_EQ(text.find("model.rope"), std::string::npos);  // not of this family
  EXPECT_EQ(text.find("mlm."), std::string::npos);
}

TEST(Explain, AutoStrategyIsOneLine) {
  const std::string text = "\n" + explain(parse_run(R"({"strategy": "auto"})", "run.json"));
  EXPECT_EQ(words(line_of(text, "strategy")), "strategy auto run.json:1:14");
  EXPECT_EQ(text.find("strategy."), text.find("strategy.data"));
  EXPECT_EQ(text.find("strategy.zero"), std::string::npos);
}

TEST(Idle, NamesWhatHasNoUseAndWhatItNeeds) {
  const config::Run run =
      parse_run(R"({"lr_schedule": {"min_ratio": 0.1}, "strategy": {"zero": 2, "schedule": "gpipe"}, "loss_scale": {"window": 7}})",
                "run.json", {"optimizer.momentum=0.5"});
  EXPECT_EQ(idle_settings(run),
            "note: optimizer.momentum = 0.5 (--set optimizer.momentum=0.5) has no use without an \"optimizer.type\" that has it (momentum, "
            "rmsprop, muon); "
            "lr_schedule.min_ratio = 0.1 (run.json:1:31) has no use without an \"lr_schedule.type\" that falls (linear, cosine, wsd); "
            "loss_scale.window = 7 (run.json:1:108) has no use without \"precision\": \"fp16\"; "
            "strategy.zero = 2 (run.json:1:58) has no use without several data ranks; "
            "strategy.schedule = \"gpipe\" (run.json:1:73) has no use without several pipe ranks\n");
}

TEST(Idle, SilentAboutWhatServesAndAboutDefaults) {
  EXPECT_EQ(idle_settings(parse_run(R"({"lr_schedule": {"type": "cosine", "min_ratio": 0.1}, "batch": {"global": 8}, "precision": "fp16",
                                        "loss_scale": {"window": 7}, "strategy": {"data": 2, "zero": 3, "keep_params": true}})",
                                    "run.json")),
            "");
  EXPECT_EQ(idle_settings(parse_run(R"({"strategy": {"zero": 0, "schedule": "1f1b"}, "lr_schedule": {"min_ratio": 0}})", "run.json")), "");
  EXPECT_EQ(idle_settings(parse_run(R"({"eval": {"every": 0}})", "run.json")), "");
  EXPECT_EQ(idle_settings(parse_run(R"({"strategy": "auto", "precision": "auto", "fp8": {"history": 4}})", "run.json")), "");
}

// A default that no run of that strategy could have would be refused in a file that says nothing wrong.
TEST(Explain, SavesAndEvaluationsAreAtFlushes) {
  const base::Json json = explain_json(parse_run(R"({"strategy": {"pipe": 2, "schedule": "2bw", "flush_every": 12}})", "run.json"));
  for (const char* key : {"checkpoint.every", "eval.every"}) {
    EXPECT_EQ(json.at(key).at("value").as_integer(), 108) << key;
    EXPECT_EQ(json.at(key).at("origin").as_string(), "derived: a multiple of strategy.flush_every") << key;
  }
  const config::Run given =
      parse_run(R"({"strategy": {"pipe": 2, "flush_every": 12}, "checkpoint": {"every": 7}, "eval": {"every": 0}})", "run.json");
  EXPECT_EQ(given.checkpoint.every, 7);
  EXPECT_EQ(given.eval.every, 0);
  EXPECT_EQ(parse_run("{}", "run.json").checkpoint.every, 100);
}

TEST(Explain, AsJson) {
  const base::Json json = explain_json(parse_run(kFile, "run.json"));
  EXPECT_EQ(json.at("batch.global").at("value").as_integer(), 16);
  EXPECT_EQ(json.at("batch.global").at("origin").as_string(), "run.json:3:23");
  EXPECT_EQ(base::write_json(json.at("strategy.stages").at("value")),
            R"([{"blocks":6,"data":2,"tensor":2},{"blocks":6,"data":2,"tensor":1}])");
}

TEST(ToJson, ParsesBackToAnEqualRun) {
  std::vector<std::string> files{"{}",
                                 std::string(kFile),
                                 R"({"strategy": "auto", "precision": "fp16", "limits": {"disk": 123457}})",
                                 R"({"model": {"path": "dir", "dropout": 0.5}, "out": "x"})",
                                 R"({"model": {"family": "llama", "width": 64, "heads": 4, "rope": {"scaling": "linear", "factor": 3}}})",
                                 R"({"model": "bert-large", "mlm": {"probability": 0.4}, "strategy": {"stages": [12, 12]}})",
                                 R"({"optimizer": {"lr": 0.1234567890123456789, "eps": 1e-37}, "freeze": ["a", "é\n"]})",
                                 R"({"limits": {"disk": 9007199254740993000, "host": 0, "device": "1KB"}})"};
  for (const std::string& preset : families::preset_names()) files.push_back(fmt::format("{{\"model\": \"{}\"}}", preset));
  for (const std::string& file : files) {
    const config::Run run = parse_run(file, "run.json");
    const std::string resolved = base::write_json(to_json(run), base::JsonLayout::pretty);
    const config::Run again = parse_run(resolved, "resolved.json");
    EXPECT_TRUE(run == again) << file << "\n" << resolved;
    EXPECT_EQ(base::write_json(to_json(again), base::JsonLayout::pretty), resolved);
  }
}

}  // namespace
}  // namespace plimsoll::config
