// Bytes in use over the calls of a program, per tier: the line that says how low the ship lies.
#pragma once

#include <cstdint>
#include <string>
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

// Rows that have room for more than there may be: memory is that of the bound.
struct BoundedRows {
  std::string name;  // of the input that counts them
  std::int64_t bound = 0;
  std::int64_t expected = 0;

  auto operator<=>(const BoundedRows&) const = default;
};
// Those that the program works on, by name.
std::vector<BoundedRows> bounded_rows(const Plan& plan, const RankClass& rank_class, const Program& program);

// The most bytes of one kind alive at once.
Bytes most_of_kind(const RankClass& rank_class, std::int32_t program, Tier tier, BufferKind kind);

}  // namespace plimsoll::plan
