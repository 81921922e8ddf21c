#include "formats/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats_tokens/token_bytes.h"

namespace plimsoll::formats {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TokenSource, ConcatenationReadsAcrossPartsOfAnySize) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::int32_t> all;
    std::vector<std::unique_ptr<TokenSource>> parts;
    for (std::size_t part = 0; part < 1 + random() % 6; ++part) {
      const auto ids = random_ids(random, random() % 10, 1000);
      all.insert(all.end(), ids.begin(), ids.end());
      parts.push_back(tokens_in_memory("part" + std::to_string(part), ids));
    }
    EXPECT_TRUE(reads_like(*concatenate(std::move(parts)), all, random));
  }
}

TEST(TokenSource, DocumentsAreKnownWhenAllPartsKnowThem) {
  const auto two = [](std::vector<std::int64_t> second) {
    std::vector<std::unique_ptr<TokenSource>> parts;
    parts.push_back(tokens_in_memory("a", {1, 2, 3}, {0, 2}));
    parts.push_back(tokens_in_memory("b", {4, 5}, std::move(second)));
    return concatenate(std::move(parts));
  };
  EXPECT_THAT(two({0, 1})->document_starts(), ElementsAre(0, 2, 3, 4));
  EXPECT_TRUE(two({})->document_starts().empty());
  EXPECT_EQ(two({0})->place_of(4).file, "b");
  EXPECT_EQ(two({0})->place_of(4).position, 1);
}

TEST(TokenSource, NegativeIdsAreOutsideEveryVocabulary) {
  const auto source = tokens_in_memory("x", {0, 5, -1});
  EXPECT_THAT(refusal([&] { check_all_ids(*source, 10); }), HasSubstr("id -1 at position 2"));
  const auto good = tokens_in_memory("x", std::vector<std::int32_t>(200000, 9));
  EXPECT_EQ(check_all_ids(*good, 10), 9);
  EXPECT_THAT(refusal([&] { check_all_ids(*good, 9); }), HasSubstr("position 0"));
}

}  // namespace
}  // namespace plimsoll::formats
