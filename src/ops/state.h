// What a value that outlives a step says of itself, beside its type and the part of it that a rank holds (part.h). Initial values,
// checkpoints and recompute go by this. What says nothing is what most state is: cut as its parameter is, the same on all data ranks,
// written by the update, zero at first.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll::ops {

struct State {
  // How ranks that share out tensors cut it.
  enum class Cut : std::uint8_t {
    parameter,  // as the parameter that it belongs to; where that is none, as its deal says
    own,        // as its own deal says (placement.h), and never in shards
  };
  // What data ranks have of it; where each has its own, what becomes of those on another number of ranks.
  enum class Merge : std::uint8_t {
    alike,  // all have the same
    sum,    // they are summands: dealt out in turn, those that meet are added, who gets none starts anew
    mean,   // all go on with the mean
    first,  // all go on with the first rank's
    anew,   // all start anew
  };
  // Which part of a step writes it; a program of its own does so between steps.
  enum class Written : std::uint8_t { update, forward, backward, program };

  Cut cut = Cut::parameter;
  Merge merge = Merge::alike;
  Written written = Written::update;
  float start = 0.0f;  // every element

  bool declared() const { return *this != State{}; }
  // Each data rank has its own.
  bool is_private() const { return merge != Merge::alike; }
  // Data ranks may hold a shard each, as of its parameter.
  bool goes_in_shards() const { return cut == Cut::parameter && !is_private(); }
  bool operator==(const State&) const = default;
};

inline constexpr int kStateCuts = 2;
inline constexpr int kStateMerges = 5;
inline constexpr int kStateWriters = 4;

std::string_view name_of(State::Cut cut);
std::string_view name_of(State::Merge merge);
std::string_view name_of(State::Written written);

}  // namespace plimsoll::ops
