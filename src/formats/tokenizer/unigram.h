// Unigram encoding: of all ways to write a text with the vocabulary's pieces, the one with the greatest sum of scores.
//
// Sums are kept in f32 and added from the left over the whole text, as SentencePiece does: near-ties are decided by rounding,
// so the same text must be summed the same way to give the same pieces.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

struct UnigramPiece {
  std::string_view text;
  std::int32_t id = 0;
  float score = 0.0f;
  bool always = false;  // user-defined: taken wherever it stands
};

class Unigram {
 public:
  Unigram(const std::vector<UnigramPiece>& pieces, std::int32_t unknown);

  struct Step {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::int32_t id = 0;
  };
  // `text` is valid UTF-8. The best path, from left to right.
  void encode(std::string_view text, std::vector<Step>& path) const;

 private:
  ByteTrie trie_;
  std::vector<float> scores_;  // by id
  std::vector<bool> always_;   // by id
  float lowest_ = std::numeric_limits<float>::max();
  float highest_ = std::numeric_limits<float>::min();  // the smallest above zero, where SentencePiece begins, too
  std::int32_t unknown_ = 0;
};

}  // namespace plimsoll::formats::tokenizer
