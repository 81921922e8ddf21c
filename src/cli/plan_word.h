// The simulator's word on one candidate, and what asking for it costs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/plan_outcome.h"

namespace plimsoll::cli {

inline constexpr std::int64_t kSimulatedPasses = 50'000;  // of blocks in all steps that are simulated, for those behind the best
inline constexpr double kFaster = 0.995;                  // of a time, what takes its place

inline bool same_mesh(const planner::Choice& a, const planner::Choice& b) {
  return a.strategy.data == b.strategy.data && a.strategy.tensor == b.strategy.tensor && a.strategy.pipe == b.strategy.pipe;
}

inline bool is_faster(const Candidate& a, const Candidate& b) { return a.estimate.step_seconds < b.estimate.step_seconds; }

// How closely: by the plan that training would run, or, where that would be made a dozen times until it fits, by its outline, which
// leaves out gaps between buffers.
enum class Closely : std::uint8_t { outline, plan };

bool may_be_outlined(const planner::Choice& choice);

// What the simulator found, or why there is no plan to simulate.
struct Word {
  std::optional<Simulated> simulated = {};
  std::string refusal = {};
  base::Bytes excess = {};  // of the device's memory, where that was it
};

// On success the candidate has the simulator's figures.
Word simulate_one(const Outcome& outcome, Candidate& candidate, Closely closely);

// What lives elsewhere is updated bucket by bucket: of large models the estimate has to do, unless it is the best.
bool has_few_buckets(const Candidate& candidate);

// Of blocks, in all lowerings that simulating the choice takes. An outline has one place for all tensor ranks; of a block in tiles, some
// are as much work as a block.
std::int64_t passes_of(const Outcome& outcome, const planner::Choice& choice);

}  // namespace plimsoll::cli
