// What a tokenizer's model does: words in, ids out. BPE, WordPiece, unigram and word level are its kinds.
//
// A model is immutable once it is made. What encoding needs to write to is in a Scratch, one for each thread at work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer/unigram.h"
#include "formats/tokenizer/word_cache.h"

namespace plimsoll::formats::tokenizer {

// A symbol of a word that is being merged, in a linked list.
struct Symbol {
  std::int32_t id = 0;
  std::int32_t previous = -1;
  std::int32_t next = -1;  // -2: this symbol was merged into another one
};

struct Merge {
  std::uint64_t order = 0;  // rank << 32 | made, or a score turned into something that sorts
  std::int32_t position = 0;
  std::int32_t made = 0;

  bool operator>(const Merge& other) const { return order != other.order ? order > other.order : position > other.position; }
};

struct Scratch {
  WordCache cache;
  std::vector<std::int32_t> ids;
  std::vector<std::uint64_t> ranks;
  std::vector<Symbol> symbols;
  std::vector<Merge> heap;
  std::vector<UnigramStep> path;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of one word (valid UTF-8, not empty). `readable` bytes may be read from its beginning on.
  virtual void encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const = 0;
};

}  // namespace plimsoll::formats::tokenizer
