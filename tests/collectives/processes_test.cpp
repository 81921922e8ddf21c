// Ranks as supervised processes: the same bits as threads, and a rank that dies, stops, fails or ends is named by all others in
// time, with nothing left behind.
#include "collectives/local/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include <fmt/format.h>

#include "collectives/cases.h"
#include "collectives/local/threads.h"
#include "collectives/rank_files.h"

namespace plimsoll::collectives {
namespace {

using plimsoll::tests::TemporaryFolder;
using tests::end_of;
using tests::RankEnd;

constexpr const char* kRanks = PLIMSOLL_BINARY_DIR "/tests/collectives/collectives_ranks";

local::SuperviseOptions options_for(int ranks, const TemporaryFolder& folder, const std::string& mode) {
  return {.ranks = ranks, .command = {kRanks, folder.path().string(), mode}};
}

bool holds(const std::string& text, std::initializer_list<std::string> words) {
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

class ProcessRanks : public testing::TestWithParam<int> {};

TEST_P(ProcessRanks, TheSameBitsAsThreads) {
  for (const std::string mode : {"few", "random"}) {
    const TemporaryFolder folder;
    ASSERT_EQ(local::supervise(options_for(GetParam(), folder, mode)), 0) << end_of(folder.path(), 0).text;
    std::vector<std::string> digests(static_cast<std::size_t>(GetParam()));
    local::run_threads(GetParam(), [&](Transport& transport) {
      const std::uint64_t digest =
          mode == "few" ? tests::run_cases(transport, {.lengths = {0, 7, 1025}}) : tests::run_random(transport, 100, 7);
      digests[static_cast<std::size_t>(transport.rank())] = fmt::format("{:016x}", digest);
    });
    for (int rank = 0; rank < GetParam(); ++rank) EXPECT_EQ(end_of(folder.path(), rank).text, digests[static_cast<std::size_t>(rank)]);
  }
}

#if defined(__SANITIZE_THREAD__)
INSTANTIATE_TEST_SUITE_P(Some, ProcessRanks, testing::Values(2, 3));
#else
INSTANTIATE_TEST_SUITE_P(Some, ProcessRanks, testing::Values(1, 2, 3, 4, 8));
#endif

TEST(Processes, TensorsLongerThanAWindow) {
  const TemporaryFolder folder;
  EXPECT_EQ(local::supervise(options_for(3, folder, "long")), 0) << end_of(folder.path(), 0).text;
}

TEST(Processes, MessagesAndBytes) {
  for (const char* mode : {"messages", "wire"}) {
    const TemporaryFolder folder;
    EXPECT_EQ(local::supervise(options_for(4, folder, mode)), 0);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(end_of(folder.path(), rank).code, 0) << end_of(folder.path(), rank).text;
  }
}

struct Struck {
  int code = -1;
  int victim = -1;
  std::int64_t at = 0;  // milliseconds
  std::vector<RankEnd> ends{};
  std::string said{};
  std::vector<pid_t> processes{};
};

// Runs ranks that work until one of them gets a signal.
Struck strike(int ranks, int victim, int signal, const Limits& limits, int delay_ms) {
  const TemporaryFolder folder;
  Struck struck{.victim = victim};
  local::SuperviseOptions options = options_for(ranks, folder, "loop");
  options.limits = limits;
  options.started = [&](int, int process) { struck.processes.push_back(process); };
  options.say = [&](const std::string& text, base::ErrorKind) { struck.said += text; };
  std::atomic<std::int64_t> at{0};
  std::jthread nemesis([&](const std::stop_token& over) {
    while (!tests::all_ready(folder.path(), ranks)) {
      if (over.stop_requested()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    at = tests::steady_milliseconds();
    kill(tests::process_of(folder.path(), victim), signal);
  });
  struck.code = local::supervise(options);
  nemesis.request_stop();
  nemesis.join();
  struck.at = at;
  for (int rank = 0; rank < ranks; ++rank) struck.ends.push_back(end_of(folder.path(), rank));
  return struck;
}

void expect_named(const Struck& struck, std::int64_t within_ms, const std::string& what) {
  EXPECT_EQ(struck.code, 4);
  const std::string name = fmt::format("rank {} {}", struck.victim, what);
  EXPECT_TRUE(holds(struck.said, {name})) << struck.said;
  for (int rank = 0; rank < static_cast<int>(struck.ends.size()); ++rank) {
    const RankEnd& end = struck.ends[static_cast<std::size_t>(rank)];
    if (rank == struck.victim) continue;
    EXPECT_EQ(end.code, 4);
    EXPECT_TRUE(holds(end.text, {name, "all_reduce #", "(sum, f32, 4096 bytes)", "group 'data'"})) << end.text;
    EXPECT_LE(end.milliseconds - struck.at, within_ms);
  }
  for (const pid_t process : struck.processes) EXPECT_TRUE(kill(process, 0) != 0 && errno == ESRCH) << "process " << process << " is left";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().filename().string().find("plimsoll"), std::string::npos) << entry.path() << " is left";
  }
}

TEST(Processes, AKilledRankIsNamedByAllWithinTwoSeconds) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 6; ++trial) {
    const int ranks = 2 + trial % 3;
    const Struck struck =
        strike(ranks, static_cast<int>(random() % static_cast<unsigned>(ranks)), SIGKILL, {}, static_cast<int>(random() % 30));
    expect_named(struck, 2000, "was ended by signal 9");
  }
}

TEST(Processes, AStoppedRankIsNamedByAllSoonAfterTheLimit) {
  const Struck struck = strike(4, 2, SIGSTOP, {.heartbeat = 1.0}, 0);
  expect_named(struck, 1000 + 1000, "gave no sign of life for 1 s");
}

TEST(Processes, ARankThatFailsIsNamedAndItsCodeKept) {
  const TemporaryFolder folder;
  EXPECT_EQ(local::supervise(options_for(3, folder, "fails")), 3);
  EXPECT_EQ(end_of(folder.path(), 1).text, "layer 3 does not fit");
  for (const int rank : {0, 2}) {
    EXPECT_EQ(end_of(folder.path(), rank).code, 4);
    EXPECT_TRUE(holds(end_of(folder.path(), rank).text, {"rank 1 failed: layer 3 does not fit", "barrier #2"}))
        << end_of(folder.path(), rank).text;
  }
}

TEST(Processes, ARankThatEndsEarlyIsNamed) {
  const TemporaryFolder folder;
  EXPECT_EQ(local::supervise(options_for(3, folder, "ends")), 4);
  EXPECT_TRUE(holds(end_of(folder.path(), 0).text, {"rank 1 has ended"}) || holds(end_of(folder.path(), 2).text, {"rank 1 has ended"}));
}

TEST(Processes, AWrongCallAndAnotherRunAreNamed) {
  const TemporaryFolder wrong;
  EXPECT_EQ(local::supervise(options_for(3, wrong, "wrong")), 1);
  const TemporaryFolder other;
  EXPECT_EQ(local::supervise(options_for(3, other, "differs")), 2);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = end_of(wrong.path(), rank).text;
    EXPECT_TRUE(holds(text, {"rank 1 asks for broadcast #2", "asks for all_reduce #2"})) << text;
    EXPECT_TRUE(holds(end_of(other.path(), rank).text, {"data: \"other.bin\" on rank 1; \"tokens.bin\" on ranks 0, 2"}));
  }
}

TEST(Processes, AProgramThatCannotBeRunIsNamed) {
  std::string said;
  local::SuperviseOptions options{.ranks = 2, .command = {"/nowhere/plimsoll"}};
  options.say = [&](const std::string& text, base::ErrorKind) { said += text; };
  EXPECT_EQ(local::supervise(options), 127);
  EXPECT_TRUE(holds(said, {"could not be started: /nowhere/plimsoll cannot be run"})) << said;
}

// The supervisor is killed: the kernel ends its ranks.
TEST(Processes, NoRankOutlivesItsSupervisor) {
  const TemporaryFolder folder;
  const pid_t supervisor = fork();
  if (supervisor == 0) _exit(local::supervise(options_for(3, folder, "loop")));
  while (!tests::all_ready(folder.path(), 3)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 3; ++rank) processes.push_back(tests::process_of(folder.path(), rank));
  kill(supervisor, SIGKILL);
  waitpid(supervisor, nullptr, 0);
  const auto gone = [](pid_t process) {
    // Adopted children may linger unreaped where nobody reaps: a zombie is gone too.
    std::ifstream status("/proc/" + std::to_string(process) + "/stat");
    std::string text((std::istreambuf_iterator<char>(status)), {});
    return text.empty() || text.find(") Z") != std::string::npos;
  };
  for (int tries = 0; tries < 200 && !std::all_of(processes.begin(), processes.end(), gone); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (const pid_t process : processes) EXPECT_TRUE(gone(process)) << process;
}

TEST(Processes, SignalsArePassedOnOnce) {
  const TemporaryFolder folder;
  const pid_t supervisor = fork();
  if (supervisor == 0) _exit(local::supervise(options_for(2, folder, "loop")));
  while (!tests::all_ready(folder.path(), 2)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(supervisor, SIGTERM);
  int status = 0;
  waitpid(supervisor, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM) << status;
}

TEST(Processes, AForeignDescriptorIsRefused) {
  setenv("PLIMSOLL_PROCESS_RANK", "0", 1);
  for (const char* value : {"0", "-1", "x", "99"}) {
    setenv("PLIMSOLL_PROCESS_MEMORY", value, 1);
    EXPECT_ANY_THROW(local::join_processes()) << value;
  }
  unsetenv("PLIMSOLL_PROCESS_RANK");
  unsetenv("PLIMSOLL_PROCESS_MEMORY");
}

}  // namespace
}  // namespace plimsoll::collectives
