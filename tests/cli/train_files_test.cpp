// What a training leaves behind, and that it leaves the same every time.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

class TrainFiles : public testing::Test {
 protected:
  std::string train(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"train", "run.json"});
    const Ended ended = folder_.plimsoll(more);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  }

  std::string data(const std::string& out) { return folder_.read(out + "/checkpoints/step-00000006/data-00000.bin"); }
  std::string manifest(const std::string& out) { return folder_.read(out + "/checkpoints/step-00000006/manifest.json"); }
  std::vector<std::string> losses(const std::string& out) { return column(folder_.read(out + "/metrics.jsonl"), "loss"); }

  RunFolder folder_;
};

// A file system of its own, with room for a few checkpoints; nothing where mounting is not allowed.
class SmallDisk {
 public:
  explicit SmallDisk(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1500k") == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

TEST_F(TrainFiles, AFullDiskFollowsThePolicy) {
  const SmallDisk disk(folder_.path("small"));
  if (!disk.mounted()) GTEST_SKIP() << "a small file system cannot be mounted here";
  const std::vector<std::string> run{"train", "run.json", "--set", "out=small/out", "--set", "checkpoint.keep=100"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), run.begin(), run.end());
    return more;
  };
  const Ended stopped = folder_.plimsoll(with({"--set", "steps=200"}));
  EXPECT_EQ(stopped.exit_code, 1) << stopped.out;
  EXPECT_NE(stopped.err.find("No space left"), std::string::npos) << stopped.err;
  const Ended again = folder_.plimsoll(with({"--set", "steps=1"}));
  EXPECT_NE(again.out.find("was saved after step"), std::string::npos) << again.out << again.err;

  Child waiting(
      plimsoll_command(with({"--set", "steps=40", "--set", "checkpoint.on_full_disk=retry", "--set", "checkpoint.retry_seconds=0.1"})),
      folder_.path());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_TRUE(waiting.running());
  // Room is made while it waits: everything but the newest goes, and the rest of the run keeps two.
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path("small/out/checkpoints"))) old.push_back(entry.path());
  std::sort(old.begin(), old.end());
  for (const auto& path : old) std::filesystem::remove_all(path);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto saved = [&] {
    return std::filesystem::exists(folder_.path("small/out/checkpoints")) &&
           !std::filesystem::is_empty(folder_.path("small/out/checkpoints"));
  };
  while (waiting.running() && !saved() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(saved());
  waiting.send(SIGTERM);
  const Ended ended = waiting.wait();
  EXPECT_NE(ended.out.find("tries again"), std::string::npos) << ended.out << ended.err;
}

// The whole way: settings of a DeepSpeed file are trained with, the rest is told, and a resolved run needs the file no more.
TEST_F(TrainFiles, DeepSpeedConfiguration) {
  folder_.write("ds.json", R"({
    // as people write them
    "train_batch_size": 8, "gradient_accumulation_steps": 4, "train_micro_batch_size_per_gpu": "auto",
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "betas": [0.9, 0.99], "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_type": "linear"}},
    "zero_optimization": {"stage": 2, "overlap_comm": true, "allgather_bucket_size": 2e8},
    "wall_clock_breakdown": true,
  })");
  folder_.write("plain.json", R"({"model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 2, "context": 32, "vocab": 256},
    "data": {"train": "train.txt"}, "batch": {"sequence": 16}, "steps": 6, "threads": 1, "out": "out"})");
  const Ended ended = folder_.plimsoll({"train", "plain.json", "--deepspeed", "ds.json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("batch: train_batch_size 8 = micro-batch 2 x accumulation steps 4 x data ranks 1"), std::string::npos)
      << ended.out;
  EXPECT_NE(ended.err.find("wall_clock_breakdown = true (ds.json:7:"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("allgather_bucket_size"), std::string::npos) << ended.err;
  EXPECT_EQ(lines_of(ended.err).size(), 4u) << ended.err;  // a heading and three keys
  const std::vector<std::string> rates = column(folder_.read("out/metrics.jsonl"), "lr");
  EXPECT_EQ(rates, (std::vector<std::string>{"0.0025", "0.005", "0.0075", "0.01", "0.01", "0.01"}));
  const std::vector<std::string> trained = losses("out");

  EXPECT_EQ(folder_.plimsoll({"train", "out/run.json", "--set", "out=again"}).exit_code, 0);
  EXPECT_EQ(losses("again"), trained);
  for (const char* command : {"plan", "explain"}) {
    EXPECT_EQ(folder_.plimsoll({command, "plain.json", "--deepspeed", "ds.json"}).exit_code, 0) << command;
  }
  folder_.write("ds.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3})");
  const Ended wrong = folder_.plimsoll({"train", "plain.json", "--deepspeed", "ds.json"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("= 8 / 3, which leaves a remainder of 2"), std::string::npos) << wrong.err;
  EXPECT_EQ(folder_.plimsoll({"train", "plain.json", "--deepspeed", "none.json"}).exit_code, 2);
}

// HJSON, with weights that live in the host's memory and the state nowhere in particular: it trains, to the same losses.
TEST_F(TrainFiles, DeepSpeedWeightsInTheHostsMemory) {
  folder_.write("plain.json", R"({"model": {"family": "gpt2", "layers": 2, "width": 16, "heads": 2, "context": 32, "vocab": 256},
    "data": {"train": "train.txt"}, "batch": {"sequence": 16}, "steps": 4, "threads": 1, "strategy": {"data": 2}, "out": "out"})");
  folder_.write("ds.hjson", "bf16: {\n  enabled: 1\n}\nzero_optimization: {\n  stage: 3\n  offload_param: {\n    device: cpu\n  }\n}\n");
  const Ended ended = folder_.plimsoll({"train", "plain.json", "--deepspeed", "ds.hjson"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("strategy.offload.optimizer is \"host\""), std::string::npos) << ended.err;
  const Ended plain =
      folder_.plimsoll({"train", "plain.json", "--set", "precision=bf16", "--set", "strategy.zero=3", "--set", "out=plain"});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(losses("out"), losses("plain"));
}

TEST_F(TrainFiles, Metrics) {
  train();
  const std::vector<std::string> lines = lines_of(folder_.read("out/metrics.jsonl"));
  ASSERT_EQ(lines.size(), 6u);
  for (std::size_t index = 0; index < lines.size(); ++index) {
    const base::Json line = base::parse_json(lines[index], "metrics.jsonl", {.strict = true});
    EXPECT_EQ(line.at("step").as_integer(), static_cast<std::int64_t>(index) + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "seconds", "tokens_per_second"}) EXPECT_GT(line.at(key).as_double(), 0.0) << key;
    EXPECT_GT(line.at("peak_bytes").at("device").as_integer(), 0);
    const bool evaluated = index == 2 || index == 5;
    EXPECT_EQ(line.find("eval_loss") != nullptr, evaluated);
    if (!evaluated) continue;
    EXPECT_EQ(line.at("eval_tokens").as_integer(), 128);
    EXPECT_GT(line.at("eval_seconds").as_double(), 0.0);
  }
}

TEST_F(TrainFiles, NothingUnexpected) {
  train();
  std::set<std::string> kinds;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path("out"))) {
    const std::string name = entry.path().lexically_relative(folder_.path("out")).string();
    kinds.insert(name.starts_with("events.out.tfevents.") ? "events" : name);
  }
  const std::set<std::string> expected{"checkpoints",
                                       "checkpoints/step-00000004",
                                       "checkpoints/step-00000004/data-00000.bin",
                                       "checkpoints/step-00000004/manifest.json",
                                       "checkpoints/step-00000006",
                                       "checkpoints/step-00000006/data-00000.bin",
                                       "checkpoints/step-00000006/manifest.json",
                                       "events",
                                       "metrics.jsonl",
                                       "model",
                                       "model/tokenizer.json",
                                       "model/tokenizer_config.json",
                                       "page.html",
                                       "plan.json",
                                       "run.json"};
  EXPECT_EQ(kinds, expected);
}

TEST_F(TrainFiles, StoredRunGivesTheSameRun) {
  train();
  const std::string stored = folder_.read("out/run.json");
  base::parse_json(stored, "run.json", {.strict = true});
  folder_.write("again.json", stored);
  const Ended ended = folder_.plimsoll({"train", "again.json", "--set", "out=again"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(losses("again"), losses("out"));
  EXPECT_EQ(data("again"), data("out"));
  EXPECT_EQ(folder_.read("again/plan.json"), folder_.read("out/plan.json"));
}

TEST_F(TrainFiles, SameRunSameBytes) {
  train();
  train({"--set", "out=second"});
  train({"--set", "out=one-thread", "--set", "threads=1"});
  ASSERT_FALSE(data("out").empty());
  for (const char* other : {"second", "one-thread"}) {
    EXPECT_EQ(losses(other), losses("out")) << other;
    EXPECT_EQ(data(other), data("out")) << other;
    EXPECT_EQ(manifest(other), manifest("out")) << other;
  }
  train({"--set", "out=seed", "--set", "seed=2"});
  EXPECT_NE(losses("seed"), losses("out"));
}

TEST_F(TrainFiles, FreshForgetsAndRepeats) {
  train();
  const std::string before = data("out");
  const auto loss = losses("out");
  EXPECT_NE(train().find("all 6 steps are done, and out/checkpoints/step-00000006 holds the result"), std::string::npos);
  EXPECT_EQ(losses("out"), loss);
  const std::string said = train({"--fresh"});
  EXPECT_EQ(said.find("resuming"), std::string::npos);
  EXPECT_EQ(losses("out"), loss);
  EXPECT_EQ(data("out"), before);
}

TEST_F(TrainFiles, MoreStepsContinue) {
  train({"--set", "steps=4"});
  EXPECT_NE(train().find("resuming after step 4"), std::string::npos);
  const auto continued = losses("out");
  train({"--set", "out=whole"});
  EXPECT_EQ(continued, losses("whole"));
  EXPECT_EQ(data("out"), data("whole"));
}

TEST_F(TrainFiles, DamagedNewestIsPassedOver) {
  train();
  const std::string good = data("out");
  std::string bad = good;
  bad[bad.size() / 3] ^= 4;
  folder_.write("out/checkpoints/step-00000006/data-00000.bin", bad);
  const std::string said = train();
  EXPECT_NE(said.find("passed over: "), std::string::npos) << said;
  EXPECT_NE(said.find("resuming after step 4"), std::string::npos) << said;
  EXPECT_EQ(data("out"), good);
  EXPECT_EQ(losses("out").size(), 6u);
}

TEST_F(TrainFiles, Trace) {
  train({"--trace", "trace.json"});
  const base::Json trace = base::parse_json(folder_.read("trace.json"), "trace.json", {.strict = true});
  std::set<std::string> names;
  std::set<double> micro_batches;
  for (const base::Json& event : trace.as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    EXPECT_GE(event.at("ts").as_double(), 0.0);
    EXPECT_GE(event.at("dur").as_double(), 0.0);
    EXPECT_EQ(event.at("pid").as_integer(), 0);
    names.insert(event.at("name").as_string());
    micro_batches.insert(event.at("args").at("micro_batch").as_double());
  }
  EXPECT_TRUE(names.contains("head.forward")) << testing::PrintToString(names);
  EXPECT_EQ(micro_batches, (std::set<double>{0, 1}));
}

TEST_F(TrainFiles, EvalAndGenerateUseTheCheckpoint) {
  train();
  const Ended eval = folder_.plimsoll({"eval", "run.json", "--batches", "2", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const base::Json found = base::parse_json(eval.out, "eval", {.strict = true});
  EXPECT_EQ(base::write_json(found.at("loss")), column(folder_.read("out/metrics.jsonl"), "eval_loss").back());
  EXPECT_DOUBLE_EQ(found.at("perplexity").as_double(), std::exp(found.at("loss").as_double()));
  const std::vector<std::string> generate{"generate", "run.json", "--prompt", "the q", "--tokens", "8", "--temperature", "1"};
  const Ended first = folder_.plimsoll(generate);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("the q"));
  EXPECT_EQ(first.out.size(), 5u + 8u + 1u);
  EXPECT_EQ(folder_.plimsoll(generate).out, first.out);
}

// Ranks of a pipeline differ: what is reported is of the rank that `plan` shows first.
TEST_F(TrainFiles, MetricsAreOfTheRankThatThePlanShows) {
  const std::vector<std::string> sizes{"run.json",
                                       "--set",
                                       "strategy.pipe=2",
                                       "--set",
                                       "model.layers=4",
                                       "--set",
                                       "batch.global=8",
                                       "--set",
                                       "strategy.schedule=gpipe",
                                       "--set",
                                       "strategy.offload.optimizer=host"};
  std::vector<std::string> planning{"plan", "--json"};
  std::vector<std::string> training{"train", "--fresh"};
  planning.insert(planning.end(), sizes.begin(), sizes.end());
  training.insert(training.end(), sizes.begin(), sizes.end());
  const Ended planned = folder_.plimsoll(planning);
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Ended trained = folder_.plimsoll(training);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const base::Json plan = base::parse_json(planned.out, "plan");
  const base::Json& fullest = plan.at("candidates").at(0).at("peak_bytes").as_object().begin()->value;
  EXPECT_EQ(plan.at("candidates").at(0).at("peak_bytes").as_object().begin()->key, "pipe 1");  // not the rank that writes
  const std::string metrics = folder_.read("out/metrics.jsonl");
  const base::Json line = base::parse_json(metrics.substr(0, metrics.find('\n')), "metrics");
  for (const char* tier : {"device", "host"}) EXPECT_EQ(line.at("peak_bytes").at(tier).as_integer(), fullest.at(tier).as_integer()) << tier;
}

}  // namespace
}  // namespace plimsoll::tests
