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
  partial,  // every rank has a summand of it
};

// A dim is dealt out in units that stay together (a key-value head with its queries, a pair of gate and up): the first
// units % members ranks get one more.
struct Placement {
  Spread spread = Spread::whole;
  int dim = 0;
  std::int64_t units = 0;

  bool operator==(const Placement&) const = default;
};

inline Placement whole() { return {}; }
inline Placement partial() { return {.spread = Spread::partial}; }
inline Placement split(int dim, std::int64_t units) { return {.spread = Spread::split, .dim = dim, .units = units}; }

// A rank's place among the members of the axis.
struct Seat {
  std::int64_t members = 1;
  std::int64_t place = 0;

  std::int64_t units_before(std::int64_t units) const { return place * (units / members) + std::min(place, units % members); }
  std::int64_t units_here(std::int64_t units) const { return units / members + (place < units % members ? 1 : 0); }
};

struct PlacementQuery {
  const Op& op;
  std::span<const Placement> inputs;  // as they come
  Types types;                        // of the whole operands
  Seat seat;
  Placement wanted = {};  // of the first result, where it is the gradient of a parameter that lies so
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
