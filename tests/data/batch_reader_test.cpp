#include "data/batch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "data/batch_memory.h"
#include "data/batch_share.h"

namespace plimsoll::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(BatchReader, TargetsAreTheNextTokens) {
  const BatchReader reader(counting_tokens(1000), {.sequence = 8, .vocab = 1000, .shuffle = false});
  EXPECT_EQ(reader.sampler().samples_per_epoch(), 124);
  const BatchMemory batch = read_batch(reader, {3, 2}, 8);
  for (int r = 0; r < 2; ++r) {
    for (int t = 0; t < 8; ++t) {
      const auto at = static_cast<std::size_t>(r * 8 + t);
      EXPECT_EQ(batch.tokens[at], (3 + r) * 8 + t);
      EXPECT_EQ(batch.targets[at], (3 + r) * 8 + t + 1);
      EXPECT_EQ(batch.positions[at], t);
      EXPECT_EQ(batch.segments[at], 0);
      EXPECT_EQ(batch.token_types[at], 0);
    }
  }
  EXPECT_EQ(batch.samples, (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(batch.valid, 16);
}

TEST(BatchReader, SplittingChangesNothing) {
  std::mt19937 random(2);
  std::vector<std::int32_t> ids(2000);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % 100);
  const std::shared_ptr<const formats::TokenSource> source = formats::tokens_in_memory("random", ids);
  const std::int64_t global = 24;
  for (const bool masked : {false, true}) {
    BatchReaderOptions options{.sequence = 16, .vocab = 100, .seed = 5};
    if (masked) options.masked = MaskedLanguageOptions{.mask_id = 99};
    if (!masked) options.documents = DocumentOptions{.end_token = 7};
    const BatchReader reader(source, options);
    for (std::int64_t step = 0; step < 14; ++step) {  // over several epochs
      const std::int64_t cursor = step * global;
      const BatchMemory whole = read_batch(reader, {cursor, global}, 16);
      for (const auto& [ranks, micro] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {2, 4}, {3, 8}, {4, 3}}) {
        BatchMemory joined(0, 16);
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const BatchReader of_rank(source, options);
          const BatchShare share{.global = global, .micro = micro, .ranks = ranks, .rank = rank};
          for (std::int64_t m = 0; m < share.micro_batches(); ++m) joined.append(read_batch(of_rank, range_of(share, cursor, m), 16));
        }
        ASSERT_EQ(joined, whole);
      }
    }
  }
}

TEST(BatchReader, EpochsAreShuffledCoversOfTheData) {
  const BatchReader reader(counting_tokens(65), {.sequence = 4, .vocab = 65, .seed = 9});
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    BatchMemory batch = read_batch(reader, {epoch * 16, 16}, 4);
    EXPECT_FALSE(std::is_sorted(batch.tokens.begin(), batch.tokens.end()));
    std::sort(batch.tokens.begin(), batch.tokens.end());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(batch.tokens[static_cast<std::size_t>(i)], i);
  }
}

TEST(BatchReader, RowsWithoutSamplesAreEmpty) {
  const BatchReader reader(counting_tokens(100), {.sequence = 4, .vocab = 100, .shuffle = false, .padding_id = 55});
  const BatchMemory batch = read_batch(reader, {0, 1}, 4, 3);
  EXPECT_EQ(batch.valid, 4);
  EXPECT_EQ(batch.samples, (std::vector<std::int32_t>{0, -1, -1}));
  EXPECT_THAT(std::vector<std::int32_t>(batch.tokens.begin() + 4, batch.tokens.end()), Each(55));
  EXPECT_THAT(std::vector<std::int32_t>(batch.targets.begin() + 4, batch.targets.end()), Each(kIgnored));
  EXPECT_THAT(std::vector<std::int32_t>(batch.segments.begin() + 4, batch.segments.end()), Each(kPadding));
}

TEST(BatchReader, TailIsAShortPaddedSample) {
  const BatchReader reader(counting_tokens(11), {.sequence = 4, .vocab = 11, .shuffle = false, .include_tail = true});
  EXPECT_EQ(reader.sampler().samples_per_epoch(), 3);
  const BatchMemory batch = read_batch(reader, {0, 3}, 4);
  EXPECT_EQ(batch.valid, 10);  // every token but the first is a target once
  EXPECT_EQ(std::vector<std::int32_t>(batch.tokens.begin() + 8, batch.tokens.end()), (std::vector<std::int32_t>{8, 9, 0, 0}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.targets.begin() + 8, batch.targets.end()), (std::vector<std::int32_t>{9, 10, -1, -1}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.segments.begin() + 8, batch.segments.end()), (std::vector<std::int32_t>{0, 0, -1, -1}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.positions.begin() + 8, batch.positions.end()), (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST(BatchReader, OptionalPartsMayBeLeftOut) {
  const BatchReader reader(counting_tokens(100), {.sequence = 4, .vocab = 100});
  const BatchMemory whole = read_batch(reader, {5, 2}, 4);
  std::vector<std::int32_t> tokens(8), targets(8);
  EXPECT_EQ(reader.read({5, 2}, BatchView{.rows = 2}.add("tokens", tokens).add("targets", targets)), 8);
  EXPECT_EQ(tokens, whole.tokens);
  EXPECT_EQ(targets, whole.targets);
}

TEST(BatchReader, BadInputIsRefused) {
  EXPECT_THAT(refusal([] { BatchReader(counting_tokens(8), {.sequence = 8, .vocab = 8}); }), HasSubstr("'counting' has 8 tokens"));
  const BatchReader reader(counting_tokens(100), {.sequence = 4, .vocab = 50, .shuffle = false});
  EXPECT_EQ(refusal([&] { read_batch(reader, {0, 12}, 4); }), "(no error)");
  EXPECT_THAT(refusal([&] { read_batch(reader, {0, 13}, 4); }), HasSubstr("token id 50 at position 50"));
  EXPECT_THAT(refusal([] { BatchReader(counting_tokens(100), {.sequence = 4, .vocab = 100, .documents = DocumentOptions{}}); }),
              HasSubstr("does not say where they end"));
}

TEST(BatchReader, SampleNumbersBeyond31BitsStayPositive) {
  const BatchReader reader(counting_tokens(100), {.sequence = 4, .vocab = 100});
  const std::int64_t far = (std::int64_t{1} << 40) + 12;
  EXPECT_EQ(read_batch(reader, {far, 1}, 4).samples[0], 12);
}

}  // namespace
}  // namespace plimsoll::data
