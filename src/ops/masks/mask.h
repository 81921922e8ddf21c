// What a query sees, as data. A query sees a key if all of these allow it:
//
//   the band       by the distance of their positions: causality, a window,
//   the pattern    by a rule: a row of a table (rules.h), or of code outside, with its numbers,
//   documents      and padding, which come as an operand.
//
// Positions are places in the whole sequence, and heads are counted over all ranks, so a part of the queries, keys or heads sees what it
// sees in the whole. One definition of band and pattern is read by the reference, the kernels of the processor and of CUDA, and prices.
//
// A rule is a struct in a file of its own (strided.h). It states
//
//   kName, kAbout, kNumbers   its name, a few words, and its settings,
//   visible()                 whether the query at a position sees the key at another, for a head,
//   sight()                   (optional) whether stretches of queries see none, some or all of stretches of keys. It may say "some" where
//                             it does not know. Without it the processor asks for every pair of a tile, and CUDA takes every tile,
//   kByHead                   (optional) whether heads differ.
//
// mask_row_of makes its row. A rule need not be causal: band and rule must both allow a pair.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/host_device.h"

namespace plimsoll::ops {

// Farther than any two positions are apart.
inline constexpr std::int64_t kEndless = std::int64_t{1} << 60;

// The query at position q sees the key at position k if low <= q - k < high.
struct Band {
  std::int64_t low = -kEndless;
  std::int64_t high = kEndless;

  PLIMSOLL_HOST_DEVICE bool sees(std::int64_t distance) const { return low <= distance && distance < high; }
  bool operator==(const Band&) const = default;
};

// Positions first, first + step, ...
struct Stretch {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;

  PLIMSOLL_HOST_DEVICE std::int64_t at(std::int64_t index) const { return first + index * step; }
  PLIMSOLL_HOST_DEVICE std::int64_t last() const { return at(count - 1); }
  Stretch part(std::int64_t begin, std::int64_t size) const { return {at(begin), size, step}; }
};

// How many of the keys of a tile its queries see.
enum class Sight : std::uint8_t { none, some, all };

// ---- a rule's row

struct MaskNumber {
  std::string_view name;
  std::string_view about;  // one sentence
  std::int64_t least = 0;
};

inline constexpr std::size_t kMostMaskNumbers = 4;
// By place in the rule's list.
using MaskNumbers = std::array<std::int64_t, kMostMaskNumbers>;

// Queries and keys that meet, of a head.
struct MaskTile {
  Stretch queries;
  Stretch keys;
  std::int64_t head = 0;
};

struct MaskRule {
  std::string_view name;
  std::string_view about;
  std::span<const MaskNumber> numbers;
  bool by_head = false;
  // Which of the rules that are compiled for the device (all.h); -1: none.
  int device_code = -1;

  bool (*visible)(const MaskNumbers& numbers, std::int64_t query, std::int64_t key, std::int64_t head) = nullptr;
  Sight (*sight)(const MaskNumbers& numbers, const MaskTile& tile) = nullptr;
  // grid[key * row + query] = -1 where the query sees the key, else 0.
  void (*fill)(const MaskNumbers& numbers, const MaskTile& tile, std::int64_t row, std::int32_t* grid) = nullptr;
};

// A rule with its numbers; no rule: nothing is hidden.
struct MaskPattern {
  const MaskRule* rule = nullptr;
  MaskNumbers numbers{};

  bool operator==(const MaskPattern&) const = default;
};

// ---- band and pattern

struct Mask {
  Band band;
  MaskPattern pattern;

  bool visible(std::int64_t query, std::int64_t key, std::int64_t head) const {
    return band.sees(query - key) && (pattern.rule == nullptr || pattern.rule->visible(pattern.numbers, query, key, head));
  }
  Sight sight(const MaskTile& tile) const;
  // Heads of it differ.
  bool by_head() const { return pattern.rule != nullptr && pattern.rule->by_head; }
};

// The distances of the tile's positions, from the least to the largest.
struct Distances {
  std::int64_t least = 0;
  std::int64_t most = 0;
};
PLIMSOLL_HOST_DEVICE inline Distances distances_of(const MaskTile& tile) {
  return {tile.queries.first - tile.keys.last(), tile.queries.last() - tile.keys.first};
}

PLIMSOLL_HOST_DEVICE inline Sight sight_of(const Band& band, const MaskTile& tile) {
  const Distances distances = distances_of(tile);
  if (distances.most < band.low || distances.least >= band.high) return Sight::none;
  return band.low <= distances.least && distances.most < band.high ? Sight::all : Sight::some;
}

inline Sight Mask::sight(const MaskTile& tile) const {
  const Sight by_band = sight_of(band, tile);
  if (by_band == Sight::none || pattern.rule == nullptr) return by_band;
  return std::min(by_band, pattern.rule->sight(pattern.numbers, tile));
}

// The band of queries and keys that are counted from 0 and lie `step` positions apart, for one of positions whose first query lies `shift`
// behind the first key.
inline Band band_of_rows(const Band& band, std::int64_t shift, std::int64_t step) {
  const auto up = [&](std::int64_t value) { return value / step + (value % step > 0 ? 1 : 0); };  // a quotient that is not below
  return {band.low <= -kEndless ? -kEndless : up(band.low - shift), band.high >= kEndless ? kEndless : up(band.high - shift)};
}

// ---- from a rule to its row

namespace detail {

template <typename Rule>
consteval bool differs_by_head() {
  if constexpr (requires { Rule::kByHead; }) return Rule::kByHead;
  return false;
}

// What the rule says, or every pair, until two differ.
template <typename Rule>
Sight sight(const MaskNumbers& numbers, const MaskTile& tile) {
  if constexpr (requires { Rule::sight(numbers, tile); }) {
    return Rule::sight(numbers, tile);
  } else {
    const bool first = Rule::visible(numbers, tile.queries.at(0), tile.keys.at(0), tile.head);
    for (std::int64_t i = 0; i < tile.queries.count; ++i) {
      for (std::int64_t j = 0; j < tile.keys.count; ++j) {
        if (Rule::visible(numbers, tile.queries.at(i), tile.keys.at(j), tile.head) != first) return Sight::some;
      }
    }
    return first ? Sight::all : Sight::none;
  }
}

template <typename Rule>
void fill(const MaskNumbers& numbers, const MaskTile& tile, std::int64_t row, std::int32_t* grid) {
  for (std::int64_t j = 0; j < tile.keys.count; ++j) {
    for (std::int64_t i = 0; i < tile.queries.count; ++i)
      grid[j * row + i] = Rule::visible(numbers, tile.queries.at(i), tile.keys.at(j), tile.head) ? -1 : 0;
  }
}

}  // namespace detail

template <typename Rule>
constexpr MaskRule mask_row_of() {
  static_assert(Rule::kNumbers.size() <= kMostMaskNumbers);
  return {.name = Rule::kName,
          .about = Rule::kAbout,
          .numbers = Rule::kNumbers,
          .by_head = detail::differs_by_head<Rule>(),
          .visible = Rule::visible,
          .sight = detail::sight<Rule>,
          .fill = detail::fill<Rule>};
}

}  // namespace plimsoll::ops
