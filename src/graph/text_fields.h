// The fields of what a graph's printed form shows in braces, by name, for ops/fields.h; and the words that begin its lines.
#pragma once

#include <string_view>

#include "graph/graph.h"
#include "ops/fields.h"

namespace plimsoll::graph {

inline constexpr std::string_view kBlockWord = "block";
inline constexpr std::string_view kTrainedWord = "trained";
inline constexpr std::string_view kFrozenWord = "frozen";
inline constexpr std::string_view kResultsWord = "results";
inline constexpr std::string_view kScalarsWord = "scalars";
inline constexpr std::string_view kPendingWord = "pending";
inline constexpr std::string_view kNobody = "_";  // no value, no block
// The type of the block of step scalars, whose size is nobody's business.
inline constexpr std::string_view kStepScalars = "step_scalars";

// Letters of names that stand without quotes.
inline constexpr std::string_view kPlainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+*/@#'-";

inline constexpr auto kInitFields = [](auto& init, auto&& visit) {
  visit("std", init.std);
  visit("frequencies", init.frequencies);
};

inline constexpr auto kDealFields = [](auto& deal, auto&& visit) {
  visit("dim", deal.dim);
  visit("units", deal.units);
  visit("own", deal.own);
  visit("shared", deal.shared);
};

inline constexpr auto kStateFields = [](auto& state, auto&& visit) {
  visit("cut", state.cut);
  visit("merge", state.merge);
  visit("written", state.written);
  visit("start", state.start);
};

inline constexpr auto kPartFields = [](auto& part, auto&& visit) {
  visit("whole", part.whole);
  visit("dim", part.dim);
  visit("begin", part.begin);
  visit("slice", part.slice);
  visit("tail", part.tail);
  visit("tail_begin", part.tail_begin);
  visit("first", part.first);
  visit("tile", part.tile);
  visit("shard", part.shard);
};

inline constexpr auto kLiveFields = [](auto& live, auto&& visit) {
  visit("bound", live.bound);
  visit("expected", live.expected);
};

}  // namespace plimsoll::graph
