// Words that were encoded before, with their ids, in one fixed block of memory.
//
// Text repeats its words: a table of the recent ones saves nearly all merging. Each word has one slot, chosen by its
// hash, and the last comer keeps it. A slot is one cache line: up to 28 bytes of word and 8 ids; longer ones are not kept.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 28;
  static constexpr std::size_t kMostIds = 8;

  // A word as its slot holds it: zeros behind the end, so that comparing needs no loop over its length.
  struct Key {
    std::array<std::uint64_t, 4> words{};  // byte 31 is the length

    std::uint64_t hash() const { return mix(mix(words[0] ^ words[3]) + (words[1] ^ words[2] * 0x9E3779B97F4A7C15u)); }
    bool operator==(const Key&) const = default;
  };
  struct alignas(64) Slot {
    Key key;  // bytes 28 and 31 hold the number of ids and the length; a length of 0 is a free slot
    std::array<std::int32_t, kMostIds> ids{};
  };

  WordCache() : slots_(kSlots) {}

  // Appends the ids of `word`: those it had before, or what `encode` appends. `readable` is how many bytes may be read from the
  // word's first one on.
  template <typename Encode>
  void encode(std::string_view word, std::size_t readable, std::vector<std::int32_t>& ids, Encode encode) {
    if (word.size() > kLongestWord) return encode(word);
    const Place place = find(word, readable);
    if (place.found) {
      for (const std::int32_t id : ids_of(place)) ids.push_back(id);
      return;
    }
    const std::size_t before = ids.size();
    encode(word);
    keep(place, std::span<const std::int32_t>(ids).subspan(before));
  }

 private:
  struct Place {
    Slot* slot = nullptr;
    Key key;
    bool found = false;
  };
  static constexpr std::size_t kSlots = std::size_t{1} << 15;
  static constexpr int kCountShift = 32;
  static constexpr std::uint64_t kCountMask = std::uint64_t{0xFF} << kCountShift;

  // Words are 1 to 28 bytes.
  Place find(std::string_view word, std::size_t readable) {
    Place place;
    place.key = key_of(word, readable);
    place.slot = &slots_[place.key.hash() & (kSlots - 1)];
    Key held = place.slot->key;
    held.words[3] &= ~kCountMask;
    place.found = held == place.key;
    return place;
  }
  static std::span<const std::int32_t> ids_of(const Place& place) {
    return std::span(place.slot->ids).first(static_cast<std::size_t>((place.slot->key.words[3] & kCountMask) >> kCountShift));
  }
  static void keep(const Place& place, std::span<const std::int32_t> ids) {
    if (ids.size() > kMostIds) return;
    place.slot->key = place.key;
    place.slot->key.words[3] |= static_cast<std::uint64_t>(ids.size()) << kCountShift;
    std::copy(ids.begin(), ids.end(), place.slot->ids.begin());
  }

  static Key key_of(std::string_view word, std::size_t readable) {
    Key key;
    if (readable >= sizeof key.words) {
      std::memcpy(key.words.data(), word.data(), sizeof key.words);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t begin = i * 8;
        const std::size_t bytes = word.size() <= begin ? 0 : word.size() - begin;
        if (bytes < 8) key.words[i] &= (std::uint64_t{1} << (bytes * 8)) - 1;
      }
    } else {
      std::memcpy(key.words.data(), word.data(), word.size());
    }
    key.words[3] |= static_cast<std::uint64_t>(word.size()) << 56;
    return key;
  }

  std::vector<Slot> slots_;
};

}  // namespace plimsoll::formats::tokenizer
