#include "lowering/layout/memory.h"

#include <gtest/gtest.h>

#include <random>

namespace plimsoll::lowering {
namespace {

void expect_sound(const std::vector<Lifetime>& lifetimes, const Layout& layout, base::Bytes alignment) {
  base::Bytes highest{0};
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const base::Bytes end = layout.offsets[i] + base::round_up(lifetimes[i].bytes, alignment);
    EXPECT_EQ(layout.offsets[i].count % alignment.count, 0);
    highest = std::max(highest, end);
    for (std::size_t j = 0; j < i; ++j) {
      const bool together = lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last;
      const bool apart = end <= layout.offsets[j] || layout.offsets[j] + base::round_up(lifetimes[j].bytes, alignment) <= layout.offsets[i];
      EXPECT_TRUE(!together || apart) << i << " and " << j;
    }
  }
  EXPECT_EQ(layout.total, highest);
  EXPECT_GE(layout.total, layout.peak);
}

TEST(Memory, NothingNeedsNothing) {
  const Layout layout = assign_offsets({}, base::Bytes{64});
  EXPECT_EQ(layout.total.count, 0);
  EXPECT_EQ(layout.peak.count, 0);
}

TEST(Memory, RandomLifetimesNeverShareAByteAtAMoment) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes;
    const int count = std::uniform_int_distribution<int>(1, 60)(random);
    for (int index = 0; index < count; ++index) {
      const int first = std::uniform_int_distribution<int>(0, 40)(random);
      const int last = first + std::uniform_int_distribution<int>(0, 20)(random);
      lifetimes.push_back({base::Bytes{std::uniform_int_distribution<int>(0, 5000)(random)}, first, last});
    }
    expect_sound(lifetimes, assign_offsets(lifetimes, base::Bytes{64}), base::Bytes{64});
  }
}

// Forward makes activations, backward frees them: lifetimes nest, and the layout is tight.
TEST(Memory, NestedLifetimesReachTheLowerBound) {
  std::vector<Lifetime> lifetimes;
  constexpr int kBlocks = 24;
  for (int block = 0; block < kBlocks; ++block) lifetimes.push_back({base::Bytes{4096 + 64 * (block % 5)}, block, 2 * kBlocks - block});
  const Layout layout = assign_offsets(lifetimes, base::Bytes{64});
  expect_sound(lifetimes, layout, base::Bytes{64});
  EXPECT_EQ(layout.total, layout.peak);
}

// Where there is a drive, what is large enough to go there as it is starts at a page of the host's memory; elsewhere nothing changes.
TEST(Memory, LargeBuffersInTheHostsMemoryStartAtPages) {
  std::mt19937 random(8);
  for (int round = 0; round < 50; ++round) {
    std::vector<Lifetime> lifetimes;
    for (int index = 0; index < 40; ++index) {
      const int first = std::uniform_int_distribution<int>(0, 40)(random);
      const int last = first + std::uniform_int_distribution<int>(0, 20)(random);
      lifetimes.push_back({base::Bytes{std::uniform_int_distribution<int>(0, 200'000)(random)}, first, last});
    }
    const base::Bytes persistent{64 * std::uniform_int_distribution<int>(0, 1000)(random)};
    const Layout layout = lay_out(lifetimes, plan::Tier::host, persistent, true);
    expect_sound(lifetimes, layout, base::Bytes{64});
    for (std::size_t index = 0; index < lifetimes.size(); ++index) {
      EXPECT_GE(layout.offsets[index], persistent);
      const bool paged = layout.offsets[index].count % 4096 == 0;
      EXPECT_TRUE(paged || lifetimes[index].bytes.count < 65'536);
    }
    const Layout plain = lay_out(lifetimes, plan::Tier::host, base::Bytes{0}, false);
    EXPECT_EQ(plain.offsets, assign_offsets(lifetimes, base::Bytes{64}).offsets);
  }
}

TEST(Memory, IsDeterministic) {
  std::vector<Lifetime> lifetimes;
  for (int index = 0; index < 50; ++index) lifetimes.push_back({base::Bytes{(index * 37) % 11 * 100}, index % 7, index % 7 + index % 5});
  EXPECT_EQ(assign_offsets(lifetimes, base::Bytes{64}).offsets, assign_offsets(lifetimes, base::Bytes{64}).offsets);
}

}  // namespace
}  // namespace plimsoll::lowering
