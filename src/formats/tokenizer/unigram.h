// Unigram encoding: of all ways to write a text with the vocabulary's pieces, the one with the greatest sum of scores.
//
// Sums are added from the left, in f32 over a whole text as SentencePiece does or in f64 over a word as the `tokenizers` package
// does: near-ties are decided by rounding, so the same text must be summed the same way to give the same pieces.
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
  double score = 0.0;
  bool always = false;  // user-defined: taken wherever it stands
};

struct UnigramStep {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::int32_t id = 0;
};

// `Score` is float or double.
template <typename Score>
class Unigram {
 public:
  // A character without a piece of its own is offered as `unknown`. Of pieces with the same text the last counts.
  Unigram(const std::vector<UnigramPiece>& pieces, std::int32_t unknown);

  // `text` is valid UTF-8. The best path, from left to right.
  void encode(std::string_view text, std::vector<UnigramStep>& path) const;

 private:
  ByteTrie trie_;
  std::vector<Score> scores_;  // by id
  std::vector<bool> always_;   // by id
  Score lowest_ = std::numeric_limits<Score>::max();
  std::int32_t unknown_ = 0;
};

}  // namespace plimsoll::formats::tokenizer
