#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "data/batch_memory.h"
#include "data/batch_share.h"

namespace plimsoll::data {
namespace {

using ::testing::HasSubstr;

TEST(Sampler, EveryEpochCoversEachWindowExactlyOnce) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const std::int64_t stride = 1 + random() % 17;
    const std::int64_t tokens = stride + 1 + random() % 3000;
    const bool tail = trial % 3 == 0;
    const Sampler sampler({.tokens = tokens, .stride = stride, .seed = random(), .shuffle = trial % 4 != 0, .include_tail = tail});
    const std::int64_t samples = sampler.samples_per_epoch();
    EXPECT_EQ(samples, tail ? (tokens - 2) / stride + 1 : (tokens - 1) / stride);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> begins;
      std::int64_t covered = 0;
      for (std::int64_t i = 0; i < samples; ++i) {
        const Window window = sampler.window(epoch * samples + i);
        EXPECT_EQ(window.epoch, epoch);
        EXPECT_EQ(window.begin, window.index * stride);
        EXPECT_LE(window.begin + window.length + 1, tokens);
        EXPECT_TRUE(begins.insert(window.begin).second);
        covered += window.length;
      }
      EXPECT_EQ(covered, tail ? tokens - 1 : samples * stride);
    }
  }
}

TEST(Sampler, FileOrderWithoutShuffle) {
  const Sampler sampler({.tokens = 101, .stride = 10, .shuffle = false});
  for (std::int64_t i = 0; i < 25; ++i) EXPECT_EQ(sampler.window(i), (Window{i % 10 * 10, 10, i / 10, i % 10}));
}

TEST(Sampler, OrderDependsOnSeedAndEpoch) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    const Sampler sampler({.tokens = 1001, .stride = 1, .seed = seed});
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < 1000; ++i) indices.push_back(sampler.window(epoch * 1000 + i).index);
    return indices;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  const auto agreeing = [](const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    int count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 1 : 0;
    return count;
  };
  EXPECT_LT(agreeing(order(1, 0), order(1, 1)), 10);
  EXPECT_LT(agreeing(order(1, 0), order(2, 0)), 10);
  EXPECT_LT(agreeing(order(1, 1), order(2, 0)), 10);  // seed and epoch are not simply added
}

// Stored runs resume by these numbers: a change here breaks them.
TEST(Sampler, OrderIsFixedForever) {
  const Sampler sampler({.tokens = 1001, .stride = 10, .seed = 42});
  std::vector<std::int64_t> found;
  for (const std::int64_t sample : {0, 1, 2, 99, 100, 101, 12345}) found.push_back(sampler.window(sample).index);
  EXPECT_EQ(found, (std::vector<std::int64_t>{89, 13, 37, 86, 91, 98, 50}));
}

TEST(Sampler, TooFewTokensAreRefusedWithTheNumbers) {
  const auto message = [](std::int64_t tokens, std::int64_t stride, bool tail = false) {
    return refusal([&] { Sampler({.name = "'x.txt'", .tokens = tokens, .stride = stride, .include_tail = tail}); });
  };
  EXPECT_EQ(message(17, 16), "(no error)");
  EXPECT_THAT(message(16, 16), HasSubstr("'x.txt' has 16 tokens, but one sequence of 16 needs 17"));
  EXPECT_THAT(message(16, 16), HasSubstr("at most 15"));
  EXPECT_THAT(message(1, 16), HasSubstr("has 1 tokens"));
  EXPECT_THAT(message(0, 16), HasSubstr("has 0 tokens"));
  EXPECT_EQ(message(2, 16, true), "(no error)");
  EXPECT_THAT(message(1, 16, true), HasSubstr("needs 2"));
  EXPECT_THAT(message(100, 0), HasSubstr("at least 1"));
}

TEST(BatchShare, RanksAndMicroBatchesCoverTheStepOnce) {
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const std::int64_t micro : {1, 2, 4}) {
      std::set<std::int64_t> samples;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const BatchShare share{.global = 48, .micro = micro, .ranks = ranks, .rank = rank};
        EXPECT_EQ(share.micro_batches(), 48 / ranks / micro);
        for (std::int64_t m = 0; m < share.micro_batches(); ++m) {
          const SampleRange range = range_of(share, 480, m);
          for (std::int64_t i = 0; i < range.count; ++i) EXPECT_TRUE(samples.insert(range.first + i).second);
        }
      }
      EXPECT_EQ(samples.size(), 48u);
      EXPECT_EQ(*samples.begin(), 480);
      EXPECT_EQ(*samples.rbegin(), 527);
    }
  }
}

TEST(BatchShare, ReadingOrderFollowsMicroBatchesAndSteps) {
  const BatchShare share{.global = 24, .micro = 4, .ranks = 2, .rank = 1};
  const std::int64_t origin = 7;  // resumed after a run with other batches
  const auto next = reading_order(share, origin);
  SampleRange range = range_of(share, origin, 0);
  for (std::int64_t step = 0; step < 4; ++step) {
    for (std::int64_t m = 0; m < share.micro_batches(); ++m) {
      EXPECT_EQ(range, range_of(share, origin + step * share.global, m));
      range = next(range);
    }
  }
}

}  // namespace
}  // namespace plimsoll::data
