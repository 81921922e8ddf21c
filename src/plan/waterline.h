// Bytes in use over the calls of a program, per tier: the line that says how low the ship lies.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace plimsoll::plan {

struct Waterline {
  std::vector<Bytes> at_call;  // bytes alive at moment i of the program, what always lives included
  Bytes persistent;
  Bytes peak;
  std::int32_t peak_call = 0;
};

Waterline waterline(const RankClass& rank_class, std::int32_t program, Tier tier);

// Bytes of each kind alive at one call.
std::vector<std::pair<BufferKind, Bytes>> by_kind(const RankClass& rank_class, std::int32_t program, Tier tier, std::int32_t call);

// The most bytes of one kind alive at once.
Bytes most_of_kind(const RankClass& rank_class, std::int32_t program, Tier tier, BufferKind kind);

}  // namespace plimsoll::plan
