#include "train/machine/core_distance.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

namespace plimsoll::train {

namespace {

constexpr int kTries = 12;
constexpr int kTrips = 1000;
constexpr std::size_t kCacheLine = 128;  // two lines: processors fetch them in pairs
// Together and apart differ by a factor of six or so; what is between is somebody else's work beside ours.
constexpr double kApart = 2.5;

struct Ends {
  int first = -1;
  int last = -1;
};

Ends usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  Ends ends;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return ends;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &cores)) continue;
    if (ends.first < 0) ends.first = core;
    ends.last = core;
  }
  return ends;
}

void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
}

double seconds_of_a_trip(const Ends& ends) {
  struct alignas(kCacheLine) Word {
    std::atomic<int> value{0};
  } word;
  double seconds = 0.0;
  const auto wait_for = [&word](int value) {
    while (word.value.load(std::memory_order_acquire) != value) {
    }
  };
  // Threads of their own, so that the caller's stays where it may run.
  std::thread far([&] {
    stay_on(ends.last);
    for (int trip = 0; trip <= kTrips; ++trip) {
      wait_for(2 * trip + 1);
      word.value.store(2 * trip + 2, std::memory_order_release);
    }
  });
  std::thread near([&] {
    stay_on(ends.first);
    word.value.store(1, std::memory_order_release);
    wait_for(2);  // both are running
    const auto begin = std::chrono::steady_clock::now();
    for (int trip = 1; trip <= kTrips; ++trip) {
      word.value.store(2 * trip + 1, std::memory_order_release);
      wait_for(2 * trip + 2);
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTrips;
  });
  far.join();
  near.join();
  return seconds;
}

}  // namespace

double core_round_trip() {
  const Ends ends = usable_cores();
  if (ends.first == ends.last) return 0.0;
  double least = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kTries; ++attempt) least = std::min(least, seconds_of_a_trip(ends));
  return least;
}

bool cores_apart(double seconds, double least) { return seconds > kApart * least; }

}  // namespace plimsoll::train
