// The tables behind a vocabulary: text to id, pair of ids to merge, and a trie of bytes.
//
// All are open-addressing hash tables in flat memory: a lookup is one or two cache lines, and a vocabulary of 250,000
// entries loads in milliseconds. They are filled once and read by many threads afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll::formats::tokenizer {

inline constexpr std::int64_t kMostTokens = 1 << 22;  // ids of a vocabulary lie below; no real one is near it

inline std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 32;
  value *= 0x9E3779B97F4A7C15u;
  return value ^ value >> 29;
}

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = text.size();
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    hash = mix(hash ^ word) + word;
  }
  std::uint64_t rest = 0;
  if (i < text.size()) std::memcpy(&rest, text.data() + i, text.size() - i);
  return mix(hash ^ rest);
}

// Texts with their ids, both ways.
class TextTable {
 public:
  static constexpr std::int32_t kNone = -1;

  void reserve(std::size_t texts);
  // False when the text or the id is already there. Ids may come in any order and leave gaps.
  bool add(std::string_view text, std::int32_t id);
  // A text that is there already gets `id` on top: it is found under the last one.
  void add_again(std::string_view text, std::int32_t id);
  std::int32_t find(std::string_view text) const;  // kNone when absent
  // Empty for an id that is not there.
  std::string_view text_of(std::int32_t id) const { return has(id) ? text_at(id) : std::string_view(); }
  bool has(std::int32_t id) const { return id >= 0 && id < limit() && places_[static_cast<std::size_t>(id)].used; }
  std::int32_t limit() const { return static_cast<std::int32_t>(places_.size()); }  // above every id
  std::size_t size() const { return count_; }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;
    bool used = false;
  };

  void grow(std::size_t slots);
  void keep_text(std::string_view text, std::int32_t id);
  std::uint64_t slot_of(std::string_view text) const;  // where it is, or where it would be put
  std::string_view text_at(std::int32_t id) const {
    const Place& place = places_[static_cast<std::size_t>(id)];
    return {bytes_.data() + place.begin, place.length};
  }

  std::string bytes_;
  std::vector<Place> places_;        // by id
  std::vector<std::int32_t> slots_;  // ids; kNone = free
  std::size_t count_ = 0;
};

// (left, right) -> rank << 32 | the id of what they make; the last rank given to a pair counts.
class PairTable {
 public:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  explicit PairTable(std::size_t pairs = 0);
  void add(std::int32_t left, std::int32_t right, std::uint32_t rank, std::int32_t made);
  std::uint64_t find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::uint64_t slot = mix(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].value;
      if (slots_[slot].key == kNone) return kNone;
    }
  }

 private:
  struct Slot {
    std::uint64_t key = kNone;
    std::uint64_t value = kNone;
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
};

// Words as paths of bytes. Nodes are numbered from 0, the root.
class ByteTrie {
 public:
  static constexpr std::int32_t kNone = -1;

  ByteTrie();
  void add(std::string_view word, std::int32_t value);  // a later value replaces an earlier one
  std::int32_t child(std::int32_t node, char byte) const {
    const std::uint32_t key = key_of(node, byte);
    for (std::uint64_t slot = mix(key) & mask_;; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].child;
      if (slots_[slot].child == kNone) return kNone;
    }
  }
  std::int32_t value(std::int32_t node) const { return values_[static_cast<std::size_t>(node)]; }
  // The node at the end of `word`, or kNone.
  std::int32_t walk(std::string_view word, std::int32_t from = 0) const;

  struct Match {
    std::size_t length = 0;
    std::int32_t value = kNone;
  };
  // The longest word that `text` begins with, from `node` on.
  Match longest(std::string_view text, std::int32_t node = 0) const;

 private:
  struct Slot {
    std::uint32_t key = 0;
    std::int32_t child = kNone;  // kNone = free
  };

  static std::uint32_t key_of(std::int32_t node, char byte) {
    return static_cast<std::uint32_t>(node) << 8 | static_cast<std::uint8_t>(byte);
  }
  void place(std::uint32_t key, std::int32_t child);

  std::vector<Slot> slots_;
  std::uint64_t mask_ = 0;
  std::vector<std::int32_t> values_;  // by node
};

}  // namespace plimsoll::formats::tokenizer
