// What a run takes from the system is what it said it would take: the arena to the byte, the process within 5%.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json.h"

extern char** environ;

namespace plimsoll {
namespace {

struct Finished {
  int status = -1;
  std::int64_t peak_bytes = 0;  // resident, as the system counted it
  double last_bytes = 0.0;      // the most in the last looks at the process before it ended
  std::string output;
};

double resident_now(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return 1024.0 * std::strtod(line.c_str() + 6, nullptr);
  }
  return 0.0;
}

Finished run_program(std::vector<std::string> arguments, const std::filesystem::path& output) {
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, PLIMSOLL_PROGRAM, &actions, nullptr, raw.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  Finished finished;
  if (failed != 0) return finished;
  struct rusage usage{};
  constexpr std::size_t kLastLooks = 20;
  std::deque<double> looks;
  while (wait4(child, &finished.status, WNOHANG, &usage) == 0) {
    looks.push_back(resident_now(child));
    if (looks.size() > kLastLooks) looks.pop_front();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!looks.empty()) finished.last_bytes = *std::max_element(looks.begin(), looks.end());
  finished.peak_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  finished.output = text.str();
  return finished;
}

class Memory : public testing::Test {
 protected:
  Memory() : folder_(std::filesystem::temp_directory_path() / ("plimsoll-memory-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream corpus(folder_ / "corpus.txt");
    for (int line = 0; line < 5000; ++line) corpus << "line " << line << " of a text that is long enough to train on\n";
  }
  ~Memory() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::vector<double> losses_in(const std::string& out) const {
    std::ifstream metrics(folder_ / out / "metrics.jsonl");
    std::vector<double> found;
    for (std::string line; std::getline(metrics, line);) found.push_back(base::parse_json(line, "metrics").at("loss").as_double());
    return found;
  }

  void expect_as_said(const std::string& model, const std::string& precision, const std::string& micro) {
    std::ofstream(folder_ / "run.json") << "{\"model\": " << model << ", \"data\": {\"train\": \"" << path("corpus.txt")
                                        << "\", \"valid\": \"" << path("corpus.txt")
                                        << "\"}, \"batch\": {\"global\": 8, \"micro\": " << micro
                                        << ", \"sequence\": 128}, \"precision\": \"" << precision
                                        << "\", \"steps\": 3, \"eval\": {\"every\": 2, \"batches\": 2}, \"out\": \"" << path("out")
                                        << "\", \"threads\": 2}";
    const Finished planned = run_program({"plimsoll", "plan", path("run.json"), "--json"}, folder_ / "plan.txt");
    ASSERT_EQ(planned.status, 0);
    const base::Json candidate = base::parse_json(planned.output, "plan").at("candidates").at(std::size_t{0});
    const std::int64_t arena = candidate.at("peak_bytes").at("all").at("device").as_integer();
    const std::int64_t total = arena + candidate.at("reserve_bytes").as_integer();

    const Finished trained = run_program({"plimsoll", "train", path("run.json"), "--fresh"}, folder_ / "train.txt");
    ASSERT_EQ(trained.status, 0);
    std::string line;
    std::getline(std::ifstream(folder_ / "out" / "metrics.jsonl") >> std::ws, line);
    EXPECT_EQ(base::parse_json(line, "metrics").at("peak_bytes").at("device").as_integer(), arena);
    EXPECT_NEAR(static_cast<double>(trained.peak_bytes), static_cast<double>(total), 0.05 * static_cast<double>(total))
        << "arena " << arena;
  }

  std::filesystem::path folder_;
};

constexpr const char* kModel = R"({"family": "gpt2", "layers": 4, "width": 384, "heads": 6, "context": 128, "vocab": 8000})";

TEST_F(Memory, IsWhatThePlanSaysInF32) { expect_as_said(kModel, "f32", "8"); }
TEST_F(Memory, IsWhatThePlanSaysInBf16WithMicroBatches) { expect_as_said(kModel, "bf16", "4"); }
TEST_F(Memory, IsWhatThePlanSaysOfALlama) {
  expect_as_said(R"({"family": "llama", "layers": 6, "width": 256, "heads": 8, "kv_heads": 2, "context": 128, "vocab": 4000})", "f32", "8");
}

// What became the program may have had far more than it, and the system counts that: it is not the program's own.
TEST_F(Memory, CountsNothingOfWhoStartedIt) {
  constexpr std::size_t kMuch = std::size_t{400} << 20;
  std::ofstream(folder_ / "run.json") << R"({"model": {"family": "gpt2", "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256},
    "data": {"train": ")" << path("corpus.txt")
                                      << "\"}, \"out\": \"" << path("out") << "\"}";
  const std::string run = path("run.json");
  const std::string output = path("plan.txt");
  const pid_t child = fork();
  if (child == 0) {
    const std::vector<char> much(kMuch, 'x');
    const int file = open(output.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(file, 1);
    execl(PLIMSOLL_PROGRAM, "plimsoll", "plan", run.c_str(), "--json", static_cast<char*>(nullptr));
    _exit(static_cast<int>(much[0]));
  }
  int status = -1;
  struct rusage usage{};
  wait4(child, &status, 0, &usage);
  ASSERT_EQ(status, 0);
  EXPECT_GE(static_cast<std::int64_t>(usage.ru_maxrss) * 1024, static_cast<std::int64_t>(kMuch));
  std::ostringstream text;
  text << std::ifstream(output).rdbuf();
  const base::Json candidate = base::parse_json(text.str(), "plan").at("candidates").at(std::size_t{0});
  EXPECT_LT(candidate.at("reserve_bytes").as_integer(), 100 << 20);
}

// What the run says that the process takes, in bytes: "reserve      33.8 MiB" or "arena 327 MiB".
double amount_behind(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return -1.0;
  std::istringstream words(text.substr(at + word.size()));
  double number = 0.0;
  std::string unit;
  words >> number >> unit;
  return number * (unit == "GiB" ? 1073741824.0 : unit == "MiB" ? 1048576.0 : unit == "KiB" ? 1024.0 : 1.0);
}

// A text of many megabytes whose words a tokenizer numbers: the ids lie beside the arena, and the figure that is printed, the one that a
// limit is held against and what the system counts are the same. The pages of a text that is read as bytes are the system's.
TEST_F(Memory, TheReserveHoldsTokenizerAndTokens) {
  {
    std::ofstream text(folder_ / "long.txt");
    for (int line = 0; line < 700'000; ++line) text << "line " << line << " of a text that is long\n";
    std::ofstream tokenizer(folder_ / "tokenizer.json");
    tokenizer << R"({"version": "1.0", "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "line": 1, "of": 2, "a": 3,
      "text": 4, "that": 5, "is": 6, "long": 7}}, "pre_tokenizer": {"type": "WhitespaceSplit"}})";
  }
  const auto run = [&](const std::string& name, const std::string& data, const std::string& more) {
    std::ofstream(folder_ / name) << R"({"model": {"family": "gpt2", "layers": 1, "width": 64, "heads": 2, "context": 64, "vocab": 256},
      "batch": {"global": 4, "micro": 4, "sequence": 64}, "steps": 300, "threads": 2, "checkpoint": {"every": 0}, "data": )"
                                  << data << more << R"(, "out": ")" << path(name + ".out") << "\"}";
    return run_program({"plimsoll", "train", path(name), "--fresh"}, folder_ / (name + ".txt"));
  };
  const std::string words = R"({"train": ")" + path("long.txt") + R"(", "tokenizer": ")" + path("tokenizer.json") + "\"}";
  const std::string bytes = R"({"train": ")" + path("long.txt") + R"(", "tokenizer": "bytes"})";
  const Finished numbered = run("words.json", words, "");
  ASSERT_EQ(numbered.status, 0) << numbered.output;
  const double arena = amount_behind(numbered.output, "device arena ");
  const double reserve = amount_behind(numbered.output, "reserve");
  EXPECT_GT(reserve, 4.0 * 7 * 700'000) << numbered.output;  // the ids alone
  // What is still to come when it is measured is counted as nine MiB, of which a small model needs half.
  EXPECT_LT(numbered.last_bytes, 1.02 * (arena + reserve)) << numbered.output;
  EXPECT_GT(numbered.last_bytes, arena + reserve - (9 << 20)) << numbered.output;

  // The same figure with a limit: what it leaves is enough, and a little less is not.
  const auto limit = [](double amount) { return ", \"limits\": {\"device\": " + std::to_string(static_cast<std::int64_t>(amount)) + "}"; };
  constexpr double kSlack = 3 << 20;
  EXPECT_EQ(run("fits.json", words, limit(arena + reserve + kSlack)).status, 0);
  EXPECT_EQ(WEXITSTATUS(run("tight.json", words, limit(arena + reserve - kSlack)).status), 3);
  const Finished planned = run_program({"plimsoll", "plan", path("words.json")}, folder_ / "planned.txt");
  EXPECT_NEAR(amount_behind(planned.output, "reserve"), reserve, 0.1 * reserve) << planned.output;

  const Finished mapped = run("bytes.json", bytes, "");
  ASSERT_EQ(mapped.status, 0) << mapped.output;
  EXPECT_LT(amount_behind(mapped.output, "reserve"), 40 << 20);
}

// A plan that is fitted to a limit fits it beside what the search for it took, and the process keeps to it.
TEST_F(Memory, PlansFittedToALimitKeepIt) {
  for (const std::int64_t limit : {230, 241, 252}) {
    SCOPED_TRACE(limit);
    std::ofstream(folder_ / "fitted.json") << "{\"model\": " << kModel << ", \"data\": {\"train\": \"" << path("corpus.txt")
                                           << R"("}, "batch": {"global": 8, "micro": 8, "sequence": 128}, "steps": 1, "threads": 2,
      "checkpoint": {"every": 0}, "strategy": {"recompute": "optimal"}, "limits": {"device": ")"
                                           << limit << "MiB\"}, \"out\": \"" << path("fitted.out") << "\"}";
    const Finished trained = run_program({"plimsoll", "train", path("fitted.json"), "--fresh"}, folder_ / "fitted.txt");
    ASSERT_EQ(trained.status, 0) << trained.output;
    EXPECT_LT(trained.peak_bytes, (limit << 20) + (limit << 20) / 20);
  }
}

// A model whose states are twenty times what it has of the device and the host together: it trains from disk with the losses that it
// has in memory, and the system never gave it more than both limits.
TEST_F(Memory, StatesFarLargerThanTheLimits) {
  const auto write_run = [&](const std::string& name, const std::string& more) {
    std::ofstream(folder_ / name) << R"({"model": {"family": "gpt2", "layers": 64, "width": 192, "heads": 3, "context": 64, "vocab": 256},
      "data": {"train": ")" << path("corpus.txt")
                                  << R"("}, "batch": {"global": 2, "micro": 2, "sequence": 32}, "steps": 2, "threads": 1,
      "checkpoint": {"every": 0}, "out": ")"
                                  << path(name + ".out") << "\"" << more << "}";
  };
  write_run("kept.json", "");
  write_run("disk.json", R"(, "strategy": {"recompute": "full", "prefetch": 1, "bucket": "1MB",
      "offload": {"optimizer": "disk", "gradients": "disk", "params": "disk", "activations": "none"}},
      "limits": {"device": "112MiB", "host": "16MiB", "disk": "1GiB", "disk_path": ")" +
                             folder_.string() + "\"}");
  const Finished kept = run_program({"plimsoll", "train", path("kept.json"), "--fresh"}, folder_ / "kept.txt");
  const Finished disk = run_program({"plimsoll", "train", path("disk.json"), "--fresh"}, folder_ / "disk.txt");
  ASSERT_EQ(kept.status, 0);
  ASSERT_EQ(disk.status, 0) << disk.output;
  ASSERT_EQ(losses_in("kept.json.out").size(), 2u);
  EXPECT_EQ(losses_in("disk.json.out"), losses_in("kept.json.out"));
  const auto arena = [&](const std::string& out, const char* tier) {
    std::string line;
    std::getline(std::ifstream(folder_ / out / "metrics.jsonl") >> std::ws, line);
    return base::parse_json(line, "metrics").at("peak_bytes").at(tier).as_integer();
  };
  EXPECT_GT(arena("kept.json.out", "device"), 20 * (arena("disk.json.out", "device") + arena("disk.json.out", "host")));
  EXPECT_LT(disk.peak_bytes, std::int64_t{128} << 20);
}

// A token table that is larger than what the run has of the device and the host together is served from disk by rows. With plain gradient
// descent it trains as it does in memory, and the system gave it less than the table has.
TEST_F(Memory, ATableLargerThanTheLimits) {
  constexpr std::int64_t kTableBytes = std::int64_t{80'000} * 192 * 4;
  const auto write_run = [&](const std::string& name, const std::string& strategy, const std::string& more) {
    std::ofstream(folder_ / name)
        << R"({"model": {"family": "gpt2", "layers": 1, "width": 192, "heads": 3, "context": 64, "vocab": 80000, "tied": false},
      "data": {"train": ")"
        << path("corpus.txt") << R"("}, "batch": {"global": 4, "micro": 2, "sequence": 16}, "steps": 3, "threads": 1,
      "optimizer": {"type": "sgd", "lr": 0.1, "weight_decay": 0, "clip": 0}, "checkpoint": {"every": 0}, "out": ")"
        << path(name + ".out") << R"(", "strategy": {"tile": "1MB", "prefetch": 1, "bucket": "1MB")" << strategy << "}" << more << "}";
  };
  write_run("kept.json", "", "");
  write_run("rows.json", R"(, "embedding_rows": "disk", "offload": {"optimizer": "disk", "gradients": "disk", "params": "disk"})",
            R"(, "limits": {"device": "50MiB", "host": "8MiB", "disk": "2GiB", "disk_path": ")" + folder_.string() + "\"}");
  const Finished kept = run_program({"plimsoll", "train", path("kept.json"), "--fresh"}, folder_ / "kept.txt");
  const Finished rows = run_program({"plimsoll", "train", path("rows.json"), "--fresh"}, folder_ / "rows.txt");
  ASSERT_EQ(kept.status, 0) << kept.output;
  ASSERT_EQ(rows.status, 0) << rows.output;
  ASSERT_EQ(losses_in("kept.json.out").size(), 3u);
  EXPECT_EQ(losses_in("rows.json.out"), losses_in("kept.json.out"));
  EXPECT_GT(kTableBytes, std::int64_t{58} << 20);
  EXPECT_LT(rows.peak_bytes, std::int64_t{58} << 20);
}

}  // namespace
}  // namespace plimsoll
