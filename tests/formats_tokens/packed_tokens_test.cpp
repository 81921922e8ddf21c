#include "formats/packed_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats {
namespace {

using ::testing::ElementsAre;

// Ids that come in pieces of any size, across the pieces of memory too.
TEST(PackedTokens, ReadAsTheyCame) {
  std::mt19937 random(11);
  for (const auto& [vocab, bytes] : {std::pair{256, 1}, {257, 2}, {65536, 2}, {65537, 4}, {200'000, 4}}) {
    PackedTokens tokens("x", narrowest_width(vocab));
    std::vector<std::int32_t> all{0, vocab - 1};
    tokens.append(all);
    while (all.size() < 600'000) {
      const std::vector<std::int32_t> ids = random_ids(random, random() % 100'000, vocab);
      tokens.append(ids);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    EXPECT_TRUE(reads_like(tokens, all, random)) << vocab;
    EXPECT_EQ(tokens.bytes(), bytes * std::ssize(all));
  }
}

TEST(PackedTokens, DocumentsBeginWhereSomethingFollows) {
  PackedTokens tokens("x", IdWidth::u8);
  tokens.begin_document();
  tokens.append(std::vector<std::int32_t>{1, 2});
  tokens.begin_document();
  tokens.begin_document();  // the one before had nothing
  tokens.append(std::vector<std::int32_t>{3});
  tokens.begin_document();
  tokens.drop_empty_document();
  EXPECT_THAT(tokens.document_starts(), ElementsAre(0, 2));
}

}  // namespace
}  // namespace plimsoll::formats
