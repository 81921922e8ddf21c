// Many ranks as their user meets them: threads, processes and MPI give the same bytes, a wrong layout is refused once, and a rank
// that is killed is named, after which the run goes on as if nothing had been.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <random>
#include <regex>
#include <thread>

#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

using Arguments = std::vector<std::string>;

Arguments with(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const Arguments kTrain{"train", "run.json", "--set", "threads=1", "--set", "batch.micro=1"};

// Everything that a run of up to three ranks leaves but times.
std::string results_of(const RunFolder& folder, const std::string& step) {
  std::string all;
  const std::string checkpoint = "out/checkpoints/step-" + step + "/";
  for (const char* name : {"data-00000.bin", "data-00001.bin", "data-00002.bin", "manifest.json"}) all += folder.read(checkpoint + name);
  for (const std::string& loss : column(folder.read("out/metrics.jsonl"), "loss")) all += loss + "\n";
  return all;
}

std::int64_t complaints(const Ended& ended) {
  std::int64_t count = 0;
  for (const std::string& line : lines_of(ended.err)) count += line.starts_with("plimsoll:") ? 1 : 0;
  return count;
}

// What MPI leaves behind at its end is not ours: leaks are looked for with the other transports.
Arguments mpirun() { return {"env", "LSAN_OPTIONS=detect_leaks=0", "mpirun", "--allow-run-as-root", "--oversubscribe"}; }

Arguments mpirun(int ranks) { return with(mpirun(), {"-n", std::to_string(ranks)}); }

class TwoRanks : public testing::TestWithParam<const char*> {
 protected:
  Arguments layout() const { return {"--set", std::string("strategy.") + GetParam()}; }
};

TEST_P(TwoRanks, ThreadsProcessesAndMpiLeaveTheSameBytes) {
  const RunFolder threads;
  const Ended first = threads.plimsoll(with(with(kTrain, layout()), {"--ranks", "2"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string expected = results_of(threads, "00000006");
  ASSERT_GT(expected.size(), 1000u);

  const RunFolder processes;
  const Ended second = processes.plimsoll(with(with(kTrain, layout()), {"--ranks", "2", "--processes"}));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(results_of(processes, "00000006") == expected);

  if (!PLIMSOLL_BUILT_WITH_MPI) return;  // tests/collectives has what such a build says
  const RunFolder mpi;
  Child child(with(mpirun(2), plimsoll_command(with(kTrain, layout()))), mpi.path(), {"TERM=xterm-256color"});
  const Ended third = child.wait();
  ASSERT_EQ(third.exit_code, 0) << third.err;
  EXPECT_EQ(third.out.find('\x1b'), std::string::npos) << "escape codes in a file";
  EXPECT_TRUE(results_of(mpi, "00000006") == expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, TwoRanks, testing::Values("zero=0", "zero=3", "tensor=2"), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '=', '_');
  return name;
});

TEST(Ranks, ARunGoesOnWithAnotherLayout) {
  const RunFolder folder;
  std::int64_t steps = 0;
  for (const Arguments& layout : std::vector<Arguments>{{"--ranks", "2", "--set", "strategy.zero=3"},
                                                        {},
                                                        {"--set", "strategy.tensor=2"},
                                                        {"--ranks", "4", "--set", "strategy.tensor=2", "--set", "strategy.zero=2"}}) {
    steps += 2;
    const Ended ended = folder.plimsoll(with(with(kTrain, layout), {"--set", "steps=" + std::to_string(steps)}));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    if (steps > 2) {
      EXPECT_NE(ended.out.find("resuming after step " + std::to_string(steps - 2)), std::string::npos) << ended.out;
    }
  }
  const RunFolder alone;
  ASSERT_EQ(alone.plimsoll(with(kTrain, {"--set", "steps=8"})).exit_code, 0);
  const std::vector<std::string> found = column(folder.read("out/metrics.jsonl"), "loss");
  const std::vector<std::string> expected = column(alone.read("out/metrics.jsonl"), "loss");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step)
    EXPECT_NEAR(std::stod(found[step]), std::stod(expected[step]), 1e-4) << "step " << step + 1;
}

TEST(Ranks, AWrongLayoutIsRefusedOnce) {
  struct Wrong {
    Arguments arguments;
    int exit_code;
    std::string says;
  };
  for (const Wrong& wrong : {Wrong{{"--ranks", "3", "--set", "strategy.data=2"}, 3, "--ranks 3"},
                             Wrong{{"--ranks", "3"}, 2, "batch.global"}, Wrong{{"--set", "strategy.tensor=3"}, 3, "units"},
                             Wrong{{"--ranks", "2", "--processes", "--set", "data.train=nowhere"}, 2, "nowhere"},
                             Wrong{{"--ranks", "2", "--set", "data.train=nowhere"}, 2, "nowhere"},
                             Wrong{{"--ranks", "2", "--set", "strategy.zero=1", "--set", "strategy.reduce=main"}, 3, "main"},
                             Wrong{{"--ranks", "2", "--set", "transport=mpi"}, 2, "mpirun"}}) {
    const RunFolder folder;
    const Ended ended = folder.plimsoll(with(kTrain, wrong.arguments));
    EXPECT_EQ(ended.exit_code, wrong.exit_code) << ended.err;
    EXPECT_NE(ended.err.find(wrong.says), std::string::npos) << ended.err;
    EXPECT_EQ(complaints(ended), 1) << ended.err;
    EXPECT_FALSE(folder.exists("out/checkpoints")) << wrong.says;
  }
}

TEST(Ranks, AWrongLayoutUnderMpiIsRefusedOnce) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const RunFolder folder;
  const Arguments command = plimsoll_command(with(kTrain, {"--set", "strategy.data=2"}));
  Child child(with(mpirun(3), command), folder.path());
  const Ended ended = child.wait();
  EXPECT_EQ(ended.exit_code, 3) << ended.err;
  EXPECT_EQ(complaints(ended), 1) << ended.err;
  // What helps there is the launcher's to say.
  EXPECT_NE(ended.err.find("3 that mpirun started"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("mpirun -n 2"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("--ranks"), std::string::npos) << ended.err;
  Child both(with(mpirun(2), plimsoll_command(with(kTrain, {"--ranks", "4"}))), folder.path());
  const Ended counted = both.wait();
  EXPECT_EQ(counted.exit_code, 3) << counted.err;
  EXPECT_NE(counted.err.find("leave --ranks out"), std::string::npos) << counted.err;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

struct Killed {
  std::string name;
  Arguments layout;
  std::size_t ranks = 2;
  int trials = 50;
};

void PrintTo(const Killed& killed, std::ostream* out) { *out << killed.name; }

class AKilledRank : public testing::TestWithParam<Killed> {};

TEST_P(AKilledRank, IsNamedAndTheRunGoesOn) {
  const Arguments train = with(with(kTrain, {"--processes", "--set", "steps=30", "--set", "checkpoint.every=5"}), GetParam().layout);
  const RunFolder golden;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(golden.plimsoll(train).exit_code, 0);
  double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string expected = results_of(golden, "00000030");

  const char* const wanted = std::getenv("PLIMSOLL_KILL_SEED");
  const std::uint32_t seed = wanted != nullptr ? static_cast<std::uint32_t>(std::stoul(wanted)) : std::random_device()();
  std::mt19937 random(seed);
  const int wanted_kills = GetParam().trials / 2;
  int kills = 0;
  // On a busy machine some kills come too late: such trials do not count, up to a point.
  for (int trial = 0; trial < GetParam().trials || (kills < wanted_kills && trial < 4 * GetParam().trials); ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial) + " of PLIMSOLL_KILL_SEED=" + std::to_string(seed));
    const RunFolder folder;
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto started = std::chrono::steady_clock::now();
      Child child(plimsoll_command(train), folder.path());
      std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<double>(0.0, whole)(random)));
      const std::vector<pid_t> ranks = children_of(child.pid());
      if (ranks.size() == GetParam().ranks) kill(ranks[random() % ranks.size()], SIGKILL);
      const auto killed_at = std::chrono::steady_clock::now();
      const Ended ended = child.wait();
      if (ended.exit_code == 0) {
        whole = std::min(whole, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
        break;
      }
      ++kills;
      EXPECT_EQ(ended.exit_code, 4) << ended.err;
      EXPECT_NE(ended.err.find("rank "), std::string::npos) << ended.err;
      EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - killed_at).count(), 10.0);
    }
    const Ended ended = folder.plimsoll(train);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(results_of(folder, "00000030") == expected);
    if (HasFailure()) return;
  }
  EXPECT_GE(kills, wanted_kills);
}

// A run without flushes saves at those that it makes; data ranks of one stage take micro-batches in turn.
INSTANTIATE_TEST_SUITE_P(Layouts, AKilledRank,
                         testing::Values(Killed{"shards", {"--ranks", "2", "--set", "strategy.zero=2"}},
                                         Killed{"no_flush",
                                                {"--set", "model.layers=2", "--set", "strategy.pipe=2", "--set", "strategy.schedule=2bw",
                                                 "--set", "strategy.flush_every=5", "--set", "optimizer.clip=0", "--set", "eval.every=10"},
                                                2,
                                                10},
                                         Killed{"own_degrees",
                                                {"--set", R"(strategy.stages=[{"blocks":1,"data":2},1])", "--set", "model.layers=2",
                                                 "--set", "model.tied=false"},
                                                3,
                                                10}),
                         [](const auto& test) { return test.param.name; });

// ---- ranks that stop, and what they leave

// Once some steps are done.
bool trains(const RunFolder& folder) {
  for (int look = 0; look < 600; ++look) {
    if (lines_of(folder.read("out/metrics.jsonl")).size() > 3) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The last line is the call that the other rank did not come to.
void expect_last_calls(const RunFolder& folder, int rank) {
  const std::vector<std::string> lines = lines_of(folder.read("out/calls-of-rank-" + std::to_string(rank) + ".txt"));
  ASSERT_GT(lines.size(), 2u);
  EXPECT_NE(lines[0].find("calls of rank " + std::to_string(rank) + " of 2"), std::string::npos) << lines[0];
  EXPECT_LE(lines.size(), 1025u);
  EXPECT_NE(lines.back().find("not over"), std::string::npos) << lines.back();
  EXPECT_NE(lines.back().find(" bytes)"), std::string::npos) << lines.back();
  EXPECT_EQ(lines[1].find("not over"), std::string::npos) << lines[1];
}

const Arguments kForEver{"--set", "steps=1000000", "--set", "checkpoint.every=0", "--set", "strategy.data=2"};

TEST(Ranks, AStoppedProcessIsNamedAndTheOthersLastCallsAreKept) {
  const RunFolder folder;
  Child child(plimsoll_command(with(with(kTrain, kForEver), {"--processes", "--set", "limits.silence=1"})), folder.path());
  ASSERT_TRUE(trains(folder));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = child.wait();
  EXPECT_LT(seconds_since(start), 10.0);
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_NE(ended.err.find("rank 1 gave no sign of life for 1 s"), std::string::npos) << ended.err;
  EXPECT_TRUE(std::regex_search(ended.err, std::regex("rank 0 waited in vain in [a-z_]+ #[0-9]+ \\(.*[0-9]+ bytes\\) of group")))
      << ended.err;
  EXPECT_NE(ended.err.find("out/calls-of-rank-*.txt"), std::string::npos) << ended.err;
  expect_last_calls(folder, 0);
}

TEST(Ranks, AStoppedRankUnderMpiIsNamedAfterTheLimit) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const RunFolder folder;
  const Arguments command = plimsoll_command(with(with(kTrain, kForEver), {"--set", "limits.wait=2"}));
  Child child(with(mpirun(2), command), folder.path());
  ASSERT_TRUE(trains(folder));
  const std::vector<pid_t> ranks = children_of(child.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = child.wait();
  EXPECT_LT(seconds_since(start), 2.0 + 5.0 + 3.0);  // the last is the launcher's own
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_NE(ended.err.find("rank 1 did not come within the limit of 2 s"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("out/calls-of-rank-0.txt"), std::string::npos) << ended.err;
  expect_last_calls(folder, 0);
}

// ---- ranks that do not belong together

TEST(Ranks, DifferentSettingsUnderMpiAreNamedOnce) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const RunFolder folder;
  const Arguments one = with(with({"-n", "1"}, plimsoll_command(kTrain)), {"--set", "strategy.data=2"});
  const Arguments other = with(with({"-n", "1"}, plimsoll_command(kTrain)), {"--set", "strategy.data=2", "--set", "optimizer.lr=0.5"});
  Child child(with(with(with(mpirun(), one), {":"}), other), folder.path());
  const Ended ended = child.wait();
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(complaints(ended), 1) << ended.err;
  EXPECT_NE(ended.err.find("optimizer.lr"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("rank 1"), std::string::npos) << ended.err;
}

// Each rank with a command line of its own.
Ended ranks_with(const RunFolder& folder, const std::vector<Arguments>& each) {
  Arguments all = mpirun();
  for (const Arguments& arguments : each) {
    if (&arguments != &each.front()) all.emplace_back(":");
    all = with(with(all, {"-n", "1"}), plimsoll_command(arguments));
  }
  Child child(all, folder.path());
  return child.wait();
}

// What only one rank meets, it says itself; the others wait for it in silence.
TEST(Ranks, WhatOneRankMeetsUnderMpiIsSaidOnce) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const Arguments good = with(kTrain, {"--set", "strategy.data=2"});
  struct Wrong {
    std::vector<Arguments> each;
    std::string says;
  };
  const Arguments no_file{"train", "nowhere.json"};
  for (const Wrong& wrong : {Wrong{{good, no_file}, "rank 1: cannot open for reading 'nowhere.json'"},
                             Wrong{{no_file, good}, "plimsoll: cannot open for reading 'nowhere.json'"},
                             Wrong{{good, with(good, {"--fresh"})}, R"(--fresh: "given" on rank 1; "not given" on rank 0)"},
                             Wrong{{with(good, {"--nonsense"}), with(good, {"--nonsense"})}, "--nonsense"}}) {
    const RunFolder folder;
    const Ended ended = ranks_with(folder, wrong.each);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(complaints(ended), 1) << ended.err;
    EXPECT_NE(ended.err.find(wrong.says), std::string::npos) << ended.err;
    EXPECT_FALSE(folder.exists("out/checkpoints")) << wrong.says;
  }
}

// Two ranks of one run in folders of their own, as on two machines: what they read must be the same, and where they write, one folder.
Ended on_two_machines(const RunFolder& folder, const Arguments& arguments) {
  Arguments all = mpirun();
  for (const char* machine : {"one", "two"}) {
    if (machine != std::string_view("one")) all.emplace_back(":");
    all = with(with(all, {"-n", "1", "-wdir", folder.path(machine).string()}), plimsoll_command(arguments));
  }
  Child child(all, folder.path());
  return child.wait();
}

TEST(Ranks, DifferentFilesOnTwoMachinesAreNamedOnce) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const RunFolder folder;
  const std::string out = "out=" + folder.path("out").string();
  for (const char* seed : {"1", "2"}) {
    const std::string machine = seed == std::string_view("1") ? "one" : "two";
    std::filesystem::create_directory(folder.path(machine));
    for (const char* file : {"run.json", "train.txt", "valid.txt"})
      std::filesystem::copy_file(folder.path(file), folder.path(machine) / file);
    const std::string trained = "trained-" + machine;
    ASSERT_EQ(folder.plimsoll({"train", "run.json", "--set", "steps=1", "--set", "seed=" + std::string(seed), "--set", "out=" + trained})
                  .exit_code,
              0);
    ASSERT_EQ(folder.plimsoll({"export", trained, machine + "/weights"}).exit_code, 0);
  }
  const Arguments train = with(kTrain, {"--set", "strategy.data=2"});
  const auto expect_named = [&](const Ended& ended, std::string_view words) {
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(complaints(ended), 1) << ended.err;
    EXPECT_NE(ended.err.find(words), std::string::npos) << ended.err;
  };
  const Arguments weights{"--set", R"(model={"path":"weights"})", "--set", out};
  expect_named(on_two_machines(folder, with(train, weights)), "model.path: \"");
  expect_named(on_two_machines(folder, with(train, {"--set", "out=own"})), "rank 1: the folder 'own' of the first rank is not there");
  folder.write("two/valid.txt", folder.read("one/train.txt"));
  expect_named(on_two_machines(folder, with(train, {"--set", out})), "data.valid: \"");
  folder.write("two/train.txt", folder.read("one/valid.txt"));
  expect_named(on_two_machines(folder, with(train, {"--set", out})), "data.train: \"");
  EXPECT_FALSE(folder.exists("out/checkpoints/step-00000002"));
}

TEST(Ranks, DifferentScheduleFilesUnderMpiAreNamedOnce) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const RunFolder folder;
  std::vector<Arguments> each;
  for (const char* name : {"1f1b", "gpipe"}) {
    const Arguments pipe{"--set", "model.layers=2", "--set", "strategy.pipe=2"};
    std::filesystem::create_directory(folder.path(name));
    const Arguments draw = with(with({"plan", "run.json", "--set", "batch.micro=1"}, pipe), {"--schedule", name});
    ASSERT_EQ(folder.plimsoll(with(draw, {"--out", std::string(name) + "/own.csv"})).exit_code, 0);
    each.push_back(with(with(kTrain, pipe), {"--set", "strategy.schedule=own.csv", "--set", "out=" + folder.path("out").string()}));
    for (const char* file : {"run.json", "train.txt", "valid.txt"}) std::filesystem::copy_file(folder.path(file), folder.path(name) / file);
  }
  Arguments all = with(mpirun(1), {"-wdir", folder.path("1f1b").string()});
  all = with(with(all, plimsoll_command(each[0])), {":", "-n", "1", "-wdir", folder.path("gpipe").string()});
  Child child(with(all, plimsoll_command(each[1])), folder.path());
  const Ended ended = child.wait();
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(complaints(ended), 1) << ended.err;
  EXPECT_NE(ended.err.find("strategy.schedule's file"), std::string::npos) << ended.err;
}

// Only the first rank locks the folder; the others hear of it, and leave nothing in a folder that is another run's.
TEST(Ranks, AFolderInUseIsToldOnce) {
  const RunFolder folder;
  Child busy(plimsoll_command(with(kTrain, {"--set", "steps=1000000", "--set", "checkpoint.every=0"})), folder.path());
  ASSERT_TRUE(trains(folder));
  std::vector<Arguments> commands{plimsoll_command(with(kTrain, {"--ranks", "4"})),
                                  plimsoll_command(with(kTrain, {"--ranks", "4", "--processes"}))};
  if (PLIMSOLL_BUILT_WITH_MPI) commands.push_back(with(mpirun(4), plimsoll_command(with(kTrain, {"--set", "strategy.data=4"}))));
  for (const Arguments& command : commands) {
    Child second(command, folder.path());
    const Ended ended = second.wait();
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(complaints(ended), 1) << ended.err;
    EXPECT_NE(ended.err.find("is in use by another training"), std::string::npos) << ended.err;
    for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(folder.exists("out/calls-of-rank-" + std::to_string(rank) + ".txt")) << rank;
  }
  busy.send(SIGKILL);
  busy.wait();
}

// A copy of the program with another digest in the linker's note: what another build is.
std::filesystem::path another_build(const RunFolder& folder) {
  std::ifstream in(PLIMSOLL_PROGRAM, std::ios::binary);
  std::string program{std::istreambuf_iterator<char>(in), {}};
  const std::string head("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);  // sizes of name and digest, kind, name
  const std::size_t at = program.find(head);
  if (at == std::string::npos) return {};
  program[at + head.size()] ^= 1;
  const std::filesystem::path path = folder.path("another-build");
  std::ofstream(path, std::ios::binary) << program;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(Ranks, DifferentBuildsUnderMpiAreNamedOnce) {
  if (!PLIMSOLL_BUILT_WITH_MPI) GTEST_SKIP() << "this program was built without MPI";
  const RunFolder folder;
  const std::filesystem::path other_program = another_build(folder);
  if (other_program.empty()) GTEST_SKIP() << "the linker left no digest of the program";
  const Arguments one = with(with({"-n", "1"}, plimsoll_command(kTrain)), {"--set", "strategy.data=2"});
  Arguments other = one;
  other[2] = other_program.string();
  Child child(with(with(with(mpirun(), one), {":"}), other), folder.path());
  const Ended ended = child.wait();
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_EQ(complaints(ended), 1) << ended.err;
  EXPECT_NE(ended.err.find("build"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("rank 1"), std::string::npos) << ended.err;
}

TEST(Ranks, WrongVariablesOfALauncherAreRefused) {
  struct Wrong {
    std::vector<std::string> environment;
    Arguments arguments;
    std::string says;
  };
  const std::string address = "MASTER_ADDR=127.0.0.1";
  const std::string port = "MASTER_PORT=29511";
  for (const Wrong& wrong :
       {Wrong{{"RANK=2", "WORLD_SIZE=2", address, port}, {}, "RANK"}, Wrong{{"RANK=0", "WORLD_SIZE=0", address, port}, {}, "WORLD_SIZE"},
        Wrong{{"RANK=0"}, {}, "WORLD_SIZE"}, Wrong{{"RANK=0", "WORLD_SIZE=2", address, port}, {}, "2 processes were started"},
        Wrong{{"RANK=0", "WORLD_SIZE=2"}, {"--set", "transport=nccl", "--set", "device=cpu"}, "\"device\" is \"cpu\""},
        Wrong{{}, {"--set", "transport=nccl", "--set", "device=cuda"}, "nccl"}}) {
    const RunFolder folder;
    Child child(plimsoll_command(with(kTrain, wrong.arguments)), folder.path(), wrong.environment);
    const Ended ended = child.wait();
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_EQ(complaints(ended), 1) << ended.err;
    EXPECT_NE(ended.err.find(wrong.says), std::string::npos) << ended.err;
    EXPECT_FALSE(folder.exists("out/checkpoints")) << wrong.says;
  }
}

}  // namespace
}  // namespace plimsoll::tests
