// Byte-pair encoding against a merger that does it the obvious way.
#include "formats/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace plimsoll::formats::tokenizer {
namespace {

struct Case {
  TextTable vocabulary;
  BpeOptions options;
};

// A vocabulary over a, b, c and space marks, grown by merging random pairs.
void fill(Case& test, std::mt19937& random) {
  std::vector<std::string> tokens{"a", "b", "c", "\xE2\x96\x81"};
  for (std::size_t i = 0; i < tokens.size(); ++i) test.vocabulary.add(tokens[i], static_cast<std::int32_t>(i));
  while (test.options.merges.size() < 60) {
    const std::string left = tokens[random() % tokens.size()];
    const std::string right = tokens[random() % tokens.size()];
    if (!test.vocabulary.add(left + right, static_cast<std::int32_t>(tokens.size()))) continue;
    tokens.push_back(left + right);
    test.options.merges.emplace_back(left, right);
  }
}

std::vector<std::int32_t> obvious(const Case& test, std::string_view word) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t i = 0; i < test.options.merges.size(); ++i) ranks[test.options.merges[i]] = i;
  std::vector<std::string> symbols;
  for (std::size_t i = 0; i < word.size(); i += word[i] == '\xE2' ? 3 : 1) symbols.emplace_back(word.substr(i, word[i] == '\xE2' ? 3 : 1));
  for (;;) {
    std::size_t best = SIZE_MAX;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = ranks.find({symbols[i], symbols[i + 1]});
      if (rank != ranks.end() && rank->second < best) {
        best = rank->second;
        where = i;
      }
    }
    if (best == SIZE_MAX) break;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(test.vocabulary.find(symbol));
  return ids;
}

// Lengths on both sides of where the heap takes over, and of what the cache keeps.
TEST(Bpe, MergesLikeTheObviousWay) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    Case test;
    fill(test, random);
    const Bpe bpe(test.vocabulary, test.options);
    Scratch scratch;
    for (const std::size_t length : {1, 2, 3, 9, 27, 28, 29, 30, 63, 64, 65, 66, 200}) {
      std::string word;
      for (std::size_t i = 0; i < length; ++i)
        word += random() % 6 == 0 ? "\xE2\x96\x81" : std::string(1, static_cast<char>('a' + random() % 3));
      for (int again = 0; again < 2; ++again) {  // the second time from the cache
        std::vector<std::int32_t> ids;
        bpe.encode_word(word, word.size(), scratch, ids);
        ASSERT_EQ(ids, obvious(test, word)) << word;
      }
    }
  }
}

TEST(WordCache, TellsWordsApartAndForgetsSome) {
  WordCache cache;
  std::mt19937 random(4);
  std::map<std::string, std::vector<std::int32_t>> known;
  int found = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string word(1 + random() % WordCache::kLongestWord, '\0');
    for (char& c : word) c = static_cast<char>(random() % 2);  // zeros, too: they must not be taken for the padding
    const std::string padded = word + std::string(32, 'x');
    const std::vector<std::int32_t> anew{i, static_cast<std::int32_t>(word.size())};
    std::vector<std::int32_t> ids;
    bool held = true;
    cache.encode(std::string_view(padded).substr(0, word.size()), i % 2 == 0 ? padded.size() : word.size(), ids, [&](std::string_view) {
      held = false;
      ids = anew;
    });
    if (held) {
      ASSERT_TRUE(known.contains(word));
      ASSERT_EQ(ids, known[word]);
      ++found;
    } else {
      known[word] = anew;
    }
  }
  EXPECT_GT(found, 10'000);
}

}  // namespace
}  // namespace plimsoll::formats::tokenizer
