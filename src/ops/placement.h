// How a value lies on the tensor axis of the mesh, and what operators make of it: every operator that can work on parts says
// here which parts of its operands it needs, which it gives, and what it becomes for one rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/definition.h"

namespace plimsoll::ops {

enum class Spread : std::uint8_t {
  whole,    // every rank has all of it
  split,    // every rank has some of one dim
  rows,     // every rank has some of the rows (all dims but the last, together), as a matrix
  partial,  // every rank has a summand of it
};
inline constexpr int kSpreads = 4;
std::string_view name_of(Spread spread);

// A dim is dealt out in units that stay together (a key-value head with its queries, a pair of gate and up): the first
// units % members ranks get one more. Where there are fewer units than ranks, units of several pieces may still be dealt out:
// neighbours share out the `own` pieces of one (queries), and each has its last `shared` ones (key and value).
struct Placement {
  Spread spread = Spread::whole;
  int dim = 0;
  std::int64_t units = 0;
  std::int64_t own = 0;
  std::int64_t shared = 0;

  bool operator==(const Placement&) const = default;
};

inline Placement whole() { return {}; }
inline Placement partial() { return {.spread = Spread::partial}; }
inline Placement rows(std::int64_t units) { return {.spread = Spread::rows, .dim = 0, .units = units}; }
inline Placement split(int dim, std::int64_t units) { return {.spread = Spread::split, .dim = dim, .units = units}; }

inline Placement on_dim(Placement placement, int dim) {
  placement.dim = dim;
  return placement;
}
// The same units without what neighbours have in common: from packed heads to query heads.
inline Placement without_shared(Placement placement) {
  placement.shared = 0;
  return placement;
}

// How many neighbours have the same unit; 1 where there are units enough.
inline std::int64_t sharers(const Placement& placement, std::int64_t members) {
  return placement.own > 0 && members > placement.units ? members / placement.units : 1;
}

// A rank's place among the members of the axis.
struct Seat {
  std::int64_t members = 1;
  std::int64_t place = 0;

  std::int64_t units_before(std::int64_t units) const { return place * (units / members) + std::min(place, units % members); }
  std::int64_t units_here(std::int64_t units) const { return units / members + (place < units % members ? 1 : 0); }
};

inline bool can_be_dealt(const Placement& placement, std::int64_t members) {
  const std::int64_t same = sharers(placement, members);
  return placement.units >= members || (same > 1 && members % placement.units == 0 && placement.own % same == 0);
}

// What of a dim a rank has: a stretch, and behind it in its memory a tail that neighbours have too.
struct Dealt {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t tail_begin = 0;
  std::int64_t tail = 0;
};

inline Dealt dealt(const Placement& placement, const Seat& seat, std::int64_t extent) {
  const std::int64_t same = sharers(placement, seat.members);
  if (same == 1) {
    const std::int64_t unit = extent / placement.units;
    return {.begin = seat.units_before(placement.units) * unit, .count = seat.units_here(placement.units) * unit};
  }
  const std::int64_t pieces = placement.own + placement.shared;
  const std::int64_t piece = extent / (placement.units * pieces);
  const std::int64_t first = seat.place / same * pieces;
  const std::int64_t own = placement.own / same;
  return {.begin = (first + seat.place % same * own) * piece,
          .count = own * piece,
          .tail_begin = (first + placement.own) * piece,
          .tail = placement.shared * piece};
}

struct PlacementQuery {
  const Op& op;
  std::span<const Placement> inputs;  // as they come
  Types types;                        // of the whole operands
  Seat seat;
  Placement wanted = {};  // of the first result, where it is the gradient of a parameter that lies so
  bool by_rows = false;   // sums of parts are put together by rows, not whole on every rank (sequence parallelism)
};

struct PlacedOp {
  Op op;                          // what this rank runs
  std::vector<Placement> inputs;  // as they must come
  std::vector<Placement> outputs;
  std::vector<bool> left_out = {};  // operands that this rank does without (a bias that another rank adds)
  // Operands that are ids into something of which this rank has a part: in how many units that is dealt out; 0: not ids. They
  // come shifted into the part (ShiftIds).
  std::vector<std::int64_t> ids_of = {};
};

}  // namespace plimsoll::ops
