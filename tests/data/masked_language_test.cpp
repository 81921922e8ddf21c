#include "data/masked_language.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "data/batch_memory.h"
#include "data/batch_reader.h"

namespace plimsoll::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

TEST(MaskedLanguage, SharesComeOutAsAsked) {
  const MaskedLanguage task({.mask_id = 7}, 1000, 3);
  std::int64_t drawn = 0, masked = 0, kept = 0, total = 0;
  for (std::int64_t sample = 0; sample < 100; ++sample) {
    Ids tokens(1000, 500), targets(1000, -99);
    const std::int64_t count = task.apply(sample, 0, tokens, targets);
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ++total;
      if (targets[i] == kIgnored) {
        ASSERT_EQ(tokens[i], 500);
        continue;
      }
      ASSERT_EQ(targets[i], 500);
      ++seen;
      masked += tokens[i] == 7 ? 1 : 0;
      kept += tokens[i] == 500 ? 1 : 0;
      ASSERT_TRUE(tokens[i] >= 0 && tokens[i] < 1000);
    }
    ASSERT_EQ(seen, count);
    drawn += seen;
  }
  const auto near = [](std::int64_t found, std::int64_t of, double share) {
    const double expected = share * static_cast<double>(of);
    return std::abs(static_cast<double>(found) - expected) < 5.0 * std::sqrt(expected * (1.0 - share));
  };
  EXPECT_TRUE(near(drawn, total, 0.15)) << drawn;
  EXPECT_TRUE(near(masked, drawn, 0.8 + 0.1 / 1000)) << masked;
  EXPECT_TRUE(near(kept, drawn, 0.1 + 0.1 / 1000)) << kept;
}

TEST(MaskedLanguage, RandomIdsCoverTheVocabulary) {
  const MaskedLanguage task({.probability = 1.0, .mask = 0.0, .random = 1.0, .mask_id = 0}, 10, 3);
  Ids tokens(10000, 0), targets(10000), counts(10, 0);
  task.apply(0, 0, tokens, targets);
  for (const std::int32_t id : tokens) ++counts[static_cast<std::size_t>(id)];
  for (const std::int32_t count : counts) EXPECT_NEAR(count, 1000, 150);
}

// Stored runs resume by these numbers: a change here breaks them.
TEST(MaskedLanguage, DrawsAreFixedForever) {
  const MaskedLanguage task({.mask_id = 9}, 1000, 42);
  Ids tokens(60, 5), targets(60);
  task.apply(12345, 0, tokens, targets);
  Ids drawn;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] != kIgnored) drawn.push_back(static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(drawn, (Ids{1, 8, 15, 18, 21, 24, 30, 31, 37, 45, 58}));
}

TEST(MaskedLanguage, DrawsDependOnSampleAndPositionOnly) {
  const MaskedLanguage task({.mask_id = 9}, 1000, 1);
  Ids whole(100, 5), whole_targets(100), other(100, 5), other_targets(100);
  task.apply(77, 0, whole, whole_targets);
  Ids part(50, 5), part_targets(50);
  task.apply(77, 50, part, part_targets);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 50));
  task.apply(78, 0, other, other_targets);
  EXPECT_NE(other_targets, whole_targets);
}

TEST(MaskedLanguage, FramedSamplesKeepTheirSpecialTokens) {
  const auto source = counting_tokens(90);
  BatchReaderOptions options{.sequence = 8, .vocab = 103, .shuffle = false, .include_tail = true, .padding_id = 100};
  options.masked =
      MaskedLanguageOptions{.probability = 0.5, .mask_id = 99, .never_masked = {12, 13}, .first_token = 101, .last_token = 102};
  const BatchReader reader(source, options);
  EXPECT_EQ(reader.sampler().samples_per_epoch(), 15);  // 89 tokens with a successor, 6 in each sample
  std::int64_t hidden = 0;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const BatchMemory batch = read_batch(reader, {epoch * 15, 15}, 8);
    std::int64_t valid = 0;
    for (std::size_t r = 0; r < 15; ++r) {
      const std::size_t length = r == 14 ? 5 : 6;
      EXPECT_EQ(batch.tokens[r * 8], 101);
      EXPECT_EQ(batch.tokens[r * 8 + length + 1], 102);
      EXPECT_EQ(batch.targets[r * 8], kIgnored);
      EXPECT_EQ(batch.targets[r * 8 + length + 1], kIgnored);
      for (std::size_t t = 1; t <= length; ++t) {
        const auto original = static_cast<std::int32_t>(r * 6 + t - 1);
        const std::int32_t target = batch.targets[r * 8 + t];
        EXPECT_TRUE(target == kIgnored || target == original);
        if (target == kIgnored) {
          EXPECT_EQ(batch.tokens[r * 8 + t], original);
        }
        if (original == 12 || original == 13) {
          EXPECT_EQ(target, kIgnored);
        }
        valid += target != kIgnored ? 1 : 0;
      }
      if (r == 14) {
        EXPECT_EQ(batch.tokens[r * 8 + 7], 100);
        EXPECT_EQ(batch.segments[r * 8 + 7], kPadding);
      }
    }
    EXPECT_EQ(batch.valid, valid);
    hidden += valid;
  }
  EXPECT_NEAR(static_cast<double>(hidden), 20 * 87 * 0.5, 120);
}

TEST(MaskedLanguage, BadOptionsAreRefused) {
  const auto message = [](const MaskedLanguageOptions& options) { return refusal([&] { MaskedLanguage(options, 100, 1); }); };
  EXPECT_THAT(message({.mask_id = 100}), HasSubstr("id 100, but the vocabulary has 100"));
  EXPECT_THAT(message({.probability = 1.5, .mask_id = 1}), HasSubstr("mlm.probability is 1.5"));
  EXPECT_THAT(message({.probability = std::nan(""), .mask_id = 1}), HasSubstr("mlm.probability"));
  EXPECT_THAT(message({.mask = 0.8, .random = 0.3, .mask_id = 1}), HasSubstr("together"));
  EXPECT_THAT(refusal([] {
                BatchReader(
                    counting_tokens(50),
                    {.sequence = 2, .vocab = 100, .masked = MaskedLanguageOptions{.mask_id = 1, .first_token = 2, .last_token = 3}});
              }),
              HasSubstr("at least 3"));
}

}  // namespace
}  // namespace plimsoll::data
