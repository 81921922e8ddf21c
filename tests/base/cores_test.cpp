#include "base/cores.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <thread>

namespace plimsoll::base {
namespace {

TEST(UsableCores, AContainersShareOfTimeCounts) {
  EXPECT_EQ(usable_cores(64, "max 100000"), 64);
  EXPECT_EQ(usable_cores(64, "200000 100000"), 2);
  EXPECT_EQ(usable_cores(64, "250000 100000"), 3);  // half a core's time is worth a thread
  EXPECT_EQ(usable_cores(64, "10000 100000"), 1);
  EXPECT_EQ(usable_cores(2, "6400000 100000"), 2);
}

TEST(UsableCores, AFileThatSaysNothingLimitsNothing) {
  for (const char* text : {"", "max", "200000", "x 100000", "200000 0", "-1 100000"}) EXPECT_EQ(usable_cores(8, text), 8) << text;
}

TEST(UsableCores, AreThoseThatTheSystemLetsUsUse) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&set));
}

}  // namespace
}  // namespace plimsoll::base
