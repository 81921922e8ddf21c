// A run beside programs that use every core: its threads must not spend processor time on waiting for each other.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "cli/run_folder.h"

namespace plimsoll::tests {
namespace {

// One for each core, until it ends.
class Neighbours {
 public:
  Neighbours() {
    for (int core = 0; core < base::usable_cores(); ++core)
      threads_.emplace_back([](const std::stop_token& stop) {
        while (!stop.stop_requested()) busy.fetch_add(1, std::memory_order_relaxed);
      });
  }

 private:
  static inline std::atomic<std::uint64_t> busy{0};
  std::vector<std::jthread> threads_;
};

double processor_seconds_of_children() {
  struct rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

TEST(BusyMachine, ThreadsThatWaitTakeNoProcessorTime) {
  if (base::usable_cores() < 2) GTEST_SKIP() << "two threads on one core never wait for each other for long";
  const RunFolder folder;
  const auto seconds_with = [&](const std::string& threads) {
    const double before = processor_seconds_of_children();
    // An empty setting is one that nobody made: the program decides.
    const Ended ended = folder.plimsoll({"train", "run.json", "--fresh", "--set", "threads=" + threads, "--set", "model.layers=2", "--set",
                                         "model.width=128", "--set", "steps=12", "--set", "checkpoint.every=0", "--set", "eval.every=0"},
                                        {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT=", "KMP_BLOCKTIME="});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return processor_seconds_of_children() - before;
  };
  const Neighbours neighbours;
  const double one = seconds_with("1");
  const double two = seconds_with("2");
  // The work is the same. Spinning at the end of every parallel loop makes it ten times as much, and the run twenty times as long.
  EXPECT_LT(two, 2.5 * one + 0.3);
}

}  // namespace
}  // namespace plimsoll::tests
