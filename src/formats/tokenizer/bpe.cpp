#include "formats/tokenizer/bpe.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "formats/tokenizer/byte_level.h"
#include "formats/tokenizer/utf8.h"

namespace plimsoll::formats::tokenizer {

namespace {

constexpr std::size_t kShortWord = 64;  // symbols; measured: a heap wins beyond about a hundred
constexpr std::int32_t kMerged = -2;

std::int32_t require(const TextTable& vocabulary, std::string_view text, const BpeOptions& options, std::size_t rank) {
  const std::int32_t id = vocabulary.find(text);
  if (id == TextTable::kNone) {
    base::bad_input("'{}': merge {} needs the token \"{}\", which the vocabulary does not have", options.name, rank, text);
  }
  return id;
}

// Where the next space mark that follows something else begins, from `from` on.
std::size_t next_space(std::string_view text, std::size_t from) {
  for (;;) {
    const std::size_t at = text.find(kSpaceMark, from);
    if (at == std::string_view::npos) return text.size();
    if (at > 0 && !(at >= kSpaceMark.size() && text.substr(at - kSpaceMark.size(), kSpaceMark.size()) == kSpaceMark)) return at;
    from = at + kSpaceMark.size();
  }
}

// A byte in the byte-level alphabet.
std::string wide_character(char byte) {
  std::string character;
  append_utf8(character, character_of_byte(static_cast<std::uint8_t>(byte)));
  return character;
}

}  // namespace

Bpe::Bpe(const TextTable& vocabulary, const BpeOptions& options)
    : vocabulary_(vocabulary),
      merges_(options.merges.size()),
      prefix_(options.prefix),
      suffix_(options.suffix),
      fuse_unknown_(options.fuse_unknown),
      byte_fallback_(options.byte_fallback),
      ignore_merges_(options.ignore_merges),
      by_bytes_(options.byte_symbols) {
  if (!options.unknown.empty()) {
    unknown_ = vocabulary.find(options.unknown);
    if (unknown_ == TextTable::kNone) {
      base::bad_input("'{}': the vocabulary does not have the token for unknown characters, \"{}\"", options.name, options.unknown);
    }
  }
  add_merges(options);
  make_byte_tables(options);
  learn_spaces(options);
}

void Bpe::add_merges(const BpeOptions& options) {
  for (std::size_t rank = 0; rank < options.merges.size(); ++rank) {
    const auto& [left, right] = options.merges[rank];
    if (right.size() < prefix_.size()) {
      base::bad_input("'{}': the right half of merge {}, \"{}\", is shorter than the prefix of continuing subwords", options.name, rank,
                      right);
    }
    const std::int32_t left_id = require(vocabulary_, left, options, rank);
    const std::int32_t right_id = require(vocabulary_, right, options, rank);
    const std::int32_t made = require(vocabulary_, left + right.substr(prefix_.size()), options, rank);
    merges_.add(left_id, right_id, static_cast<std::uint32_t>(rank), made);
  }
}

void Bpe::make_byte_tables(const BpeOptions& options) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    fallback_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    const std::string character = wide_character(static_cast<char>(byte));
    for (std::size_t kind = 0; kind < 4; ++kind) byte_symbols_[kind][byte] = symbol_of(character, (kind & 1) != 0, (kind & 2) != 0);
  }
  if (!options.byte_symbols || !options.ignore_merges) return;
  words_.reserve(vocabulary_.size());
  for (std::int32_t id = 0; id < vocabulary_.limit(); ++id) {
    if (!vocabulary_.has(id)) continue;
    const auto bytes = characters_to_bytes(vocabulary_.text_of(id));
    if (bytes && !bytes->empty()) words_.add(*bytes, id);
  }
}

void Bpe::learn_spaces(const BpeOptions& options) {
  if (by_bytes_ || ignore_merges_ || !prefix_.empty() || !suffix_.empty()) return;
  if (vocabulary_.find(kSpaceMark) == TextTable::kNone) return;
  for (const auto& [left, right] : options.merges) {
    const std::string made = left + right;
    if (next_space(made, 0) != made.size()) return;
  }
  splits_at_spaces_ = true;
}

std::int32_t Bpe::symbol_of(std::string_view character, bool first, bool last) const {
  const bool plain = (first || prefix_.empty()) && (!last || suffix_.empty());
  return vocabulary_.find(plain ? character : spelled(character, first, last));
}

std::string Bpe::spelled(std::string_view character, bool first, bool last) const {
  return fmt::format("{}{}{}", first ? "" : prefix_, character, last ? suffix_ : "");
}

bool Bpe::put_bytes(std::string_view spelling, std::vector<std::int32_t>& symbols) const {
  const auto token = [&](char byte) { return fallback_[static_cast<std::uint8_t>(byte)]; };
  if (std::any_of(spelling.begin(), spelling.end(), [&](char byte) { return token(byte) == TextTable::kNone; })) return false;
  for (const char byte : spelling) symbols.push_back(token(byte));
  return true;
}

void Bpe::encode_word(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (!splits_at_spaces_) return encode_part(word, readable, scratch, ids);
  while (!word.empty()) {
    const std::size_t end = next_space(word, 0);
    encode_part(word.substr(0, end), readable, scratch, ids);
    word.remove_prefix(end);
    readable -= end;
  }
}

void Bpe::encode_part(std::string_view word, std::size_t readable, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  scratch.cache.encode(word, readable, ids, [&](std::string_view anew) { encode_anew(anew, scratch, ids); });
}

void Bpe::encode_anew(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    const std::int32_t whole = by_bytes_ ? words_.find(word) : vocabulary_.find(word);
    if (whole != TextTable::kNone) {
      ids.push_back(whole);
      return;
    }
  }
  scratch.ids.clear();
  find_symbols(word, scratch.ids);
  if (scratch.ids.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

// A symbol outside the vocabulary becomes the tokens of the bytes it is spelled with, prefix and suffix included, if all of them
// exist, or else the unknown token, which waits until the next known symbol so that a run of them can become one.
void Bpe::find_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  bool waiting = false;
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = by_bytes_ ? 1 : length_of(word[i]);
    const std::string_view character = word.substr(i, length);
    const bool first = i == 0;
    i += length;
    const bool last = i == word.size();
    const std::int32_t id = by_bytes_ ? byte_symbols_[(first ? 1u : 0u) + (last ? 2u : 0u)][static_cast<std::uint8_t>(character[0])]
                                      : symbol_of(character, first, last);
    if (id != TextTable::kNone) {
      if (waiting) symbols.push_back(unknown_);
      waiting = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_ && put_bytes(spelled(by_bytes_ ? wide_character(character[0]) : std::string(character), first, last), symbols))
      continue;
    if (unknown_ == TextTable::kNone) continue;
    if (waiting && !fuse_unknown_) symbols.push_back(unknown_);
    waiting = true;
  }
  if (waiting) symbols.push_back(unknown_);
}

void Bpe::merge_short(Scratch& scratch) const {
  std::vector<std::int32_t>& ids = scratch.ids;
  std::size_t count = ids.size();
  if (count < 2) return;
  std::array<std::uint64_t, kShortWord> ranks;
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = merges_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) best = ranks[i] < ranks[best] ? i : best;
    if (ranks[best] == PairTable::kNone) break;
    ids[best] = static_cast<std::int32_t>(ranks[best] & 0xFFFFFFFFu);
    std::memmove(&ids[best + 1], &ids[best + 1] + 1, (count - best - 2) * sizeof(std::int32_t));
    if (best + 2 < count) std::memmove(&ranks[best], &ranks[best] + 1, (count - best - 2) * sizeof(std::uint64_t));
    --count;
    if (best > 0) ranks[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) ranks[best] = merges_.find(ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

void Bpe::merge_long(Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Merge>& heap = scratch.heap;
  const auto count = static_cast<std::int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i) symbols.push_back({scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  const auto propose = [&](std::int32_t left) {
    if (left < 0 || at(left).next < 0) return false;
    const std::uint64_t order = merges_.find(at(left).id, at(at(left).next).id);
    if (order == PairTable::kNone) return false;
    heap.push_back({order, left, 0});
    return true;
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) propose(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Merge top = heap.back();
    heap.pop_back();
    Symbol& left = at(top.position);
    if (left.next < 0) continue;  // merged away, or the last one
    Symbol& right = at(left.next);
    if (merges_.find(left.id, right.id) != top.order) continue;  // one of the two has changed since
    left.id = static_cast<std::int32_t>(top.order & 0xFFFFFFFFu);
    left.next = right.next;
    right.next = kMerged;
    if (left.next >= 0) at(left.next).previous = top.position;
    if (propose(left.previous)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (propose(top.position)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  scratch.ids.clear();
  for (const Symbol& symbol : symbols) {
    if (symbol.next != kMerged) scratch.ids.push_back(symbol.id);
  }
}

}  // namespace plimsoll::formats::tokenizer
