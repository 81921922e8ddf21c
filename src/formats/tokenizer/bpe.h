// Byte-pair encoding: a word's characters are merged pair by pair, the pair of the lowest rank first, the leftmost first
// among equals, until no pair is left that has a rank.
//
// Short words are merged in an array by looking for the smallest rank each time, which beats any heap; long ones (a whole
// text without spaces) through a heap over a linked list. With `byte_symbols` a word is bytes and each byte is a symbol,
// so that byte-level text is never written in its wide alphabet.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "formats/tokenizer/model.h"
#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

struct BpeOptions {
  std::string name;                                         // of the file, for messages
  std::vector<std::pair<std::string, std::string>> merges;  // in the order of their ranks
  std::string unknown = {};                                 // the token for characters outside the vocabulary; empty: they are dropped
  std::string prefix = {};                                  // of symbols that do not begin a word
  std::string suffix = {};                                  // of the symbol that ends a word
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token becomes that token
  bool byte_symbols = false;   // words come as bytes, the vocabulary is written in the byte-level alphabet
};

class Bpe final : public Model {
 public:
  // `vocabulary` must outlive the model.
  Bpe(const TextTable& vocabulary, const BpeOptions& options);

  void encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const override;

 private:
  void add_merges(const BpeOptions& options);
  void make_byte_tables(const BpeOptions& options);
  void learn_spaces(const BpeOptions& options);
  std::int32_t symbol_of(std::string_view character, bool first, bool last) const;
  std::string spelled(std::string_view character, bool first, bool last) const;
  bool put_bytes(std::string_view spelling, std::vector<std::int32_t>& symbols) const;  // false, and nothing put: not all have tokens
  void encode_part(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_anew(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void find_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;

  const TextTable& vocabulary_;
  PairTable merges_;
  TextTable words_;                                              // byte_symbols and ignore_merges: tokens by their bytes
  std::array<std::array<std::int32_t, 256>, 4> byte_symbols_{};  // by (first in the word) + 2 * (last in the word)
  std::array<std::int32_t, 256> fallback_{};
  std::string prefix_;
  std::string suffix_;
  std::int32_t unknown_ = TextTable::kNone;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool by_bytes_ = false;
  bool splits_at_spaces_ = false;  // no token goes on after a space mark, so a text is merged word by word
};

}  // namespace plimsoll::formats::tokenizer
