#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace plimsoll::base {
namespace {

TEST(InParallel, EveryNumberOnce) {
  for (const std::int64_t threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> seen(static_cast<std::size_t>(threads));
    in_parallel(threads, [&](std::int64_t thread) { ++seen[static_cast<std::size_t>(thread)]; });
    for (const std::atomic<int>& count : seen) EXPECT_EQ(count, 1);
  }
}

TEST(InParallel, TheLowestFailureIsThrownAfterAllHaveEnded) {
  std::atomic<int> ended{0};
  try {
    in_parallel(5, [&](std::int64_t thread) {
      ++ended;
      if (thread == 1 || thread == 3) throw std::runtime_error(std::to_string(thread));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "1");
  }
  EXPECT_EQ(ended, 5);
}

TEST(ThreadsForBytes, SmallAmountsStayOnOneThread) {
  EXPECT_EQ(threads_for_bytes(0), 1);
  EXPECT_EQ(threads_for_bytes(10'000'000), 1);
  EXPECT_GE(threads_for_bytes(std::int64_t{1} << 40), 1);
  EXPECT_LE(threads_for_bytes(std::int64_t{1} << 40), 4);
}

}  // namespace
}  // namespace plimsoll::base
