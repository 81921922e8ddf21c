#include "data/documents.h"

#include <gtest/gtest.h>

#include <random>

#include "data/batch_memory.h"
#include "data/batch_reader.h"

namespace plimsoll::data {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(Documents, EndTokenSplitsRows) {
  // Windows of 8: [1 2 0 3 4 5 0 6] then [6 7 0 0 8 9 1 2]; 0 ends a document.
  const std::shared_ptr<const formats::TokenSource> source =
      formats::tokens_in_memory("x", {1, 2, 0, 3, 4, 5, 0, 6, 6, 7, 0, 0, 8, 9, 1, 2, 0});
  BatchReaderOptions options{.sequence = 8, .vocab = 10, .shuffle = false, .documents = DocumentOptions{.end_token = 0}};
  const BatchMemory batch = read_batch(BatchReader(source, options), {0, 2}, 8);
  EXPECT_EQ(batch.tokens, (Ids{1, 2, 0, 3, 4, 5, 0, 6, 6, 7, 0, 0, 8, 9, 1, 2}));
  EXPECT_EQ(batch.targets, (Ids{2, 0, -1, 4, 5, 0, -1, 6, 7, 0, -1, -1, 9, 1, 2, 0}));
  EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 0, 1, 2, 3, 0, 0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(batch.segments, (Ids{0, 0, 0, 1, 1, 1, 1, 2, 0, 0, 0, 1, 2, 2, 2, 2}));
  EXPECT_EQ(batch.valid, 12);
  options.documents->keep_crossing_targets = true;
  const BatchMemory kept = read_batch(BatchReader(source, options), {0, 2}, 8);
  EXPECT_EQ(kept.targets, (Ids{2, 0, 3, 4, 5, 0, 6, 6, 7, 0, 0, 8, 9, 1, 2, 0}));
  EXPECT_EQ(kept.segments, batch.segments);
  EXPECT_EQ(kept.valid, 16);
}

TEST(Documents, TargetAfterTheWindowCanCrossToo) {
  const std::shared_ptr<const formats::TokenSource> source = formats::tokens_in_memory("x", {1, 2, 3, 0, 5});
  const BatchReader reader(source, {.sequence = 4, .vocab = 10, .shuffle = false, .documents = DocumentOptions{.end_token = 0}});
  const BatchMemory batch = read_batch(reader, {0, 1}, 4);
  EXPECT_EQ(batch.targets, (Ids{2, 3, 0, -1}));
  EXPECT_EQ(batch.segments, (Ids{0, 0, 0, 0}));
}

TEST(Documents, IndexOfTheSourceGivesTheSameAsEndTokens) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    Ids ids;
    std::vector<std::int64_t> starts;
    while (ids.size() < 400) {
      starts.push_back(std::ssize(ids));
      const std::size_t length = random() % 30;
      for (std::size_t i = 0; i < length; ++i) ids.push_back(1 + static_cast<std::int32_t>(random() % 9));
      ids.push_back(0);
    }
    const std::shared_ptr<const formats::TokenSource> indexed = formats::tokens_in_memory("x", ids, starts);
    const std::shared_ptr<const formats::TokenSource> plain = formats::tokens_in_memory("x", ids);
    BatchReaderOptions options{.sequence = 1 + static_cast<std::int64_t>(random() % 40), .vocab = 10, .documents = DocumentOptions{}};
    const BatchReader by_index(indexed, options);
    options.documents->end_token = 0;
    const BatchReader by_token(plain, options);
    EXPECT_EQ(read_batch(by_index, {0, 20}, options.sequence), read_batch(by_token, {0, 20}, options.sequence));
  }
}

TEST(Documents, SegmentsAreConsistentWithPositions) {
  std::mt19937 random(4);
  Ids ids(2000);
  for (auto& id : ids) id = static_cast<std::int32_t>(random() % 6);
  const std::shared_ptr<const formats::TokenSource> source = formats::tokens_in_memory("x", ids);
  const BatchReader reader(source, {.sequence = 32, .vocab = 6, .documents = DocumentOptions{.end_token = 5}});
  const BatchMemory batch = read_batch(reader, {0, 60}, 32);
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    const bool row_start = i % 32 == 0;
    const bool new_document = !row_start && batch.tokens[i - 1] == 5;
    EXPECT_EQ(batch.positions[i], row_start || new_document ? 0 : batch.positions[i - 1] + 1);
    EXPECT_EQ(batch.segments[i], row_start ? 0 : batch.segments[i - 1] + (new_document ? 1 : 0));
    EXPECT_EQ(batch.targets[i] == kIgnored, batch.tokens[i] == 5);
  }
}

}  // namespace
}  // namespace plimsoll::data
