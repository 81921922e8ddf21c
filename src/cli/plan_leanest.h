// The simulator's word on strategies at the limit of the memory, where estimates and the search leave off.
#pragma once

#include <optional>

#include "cli/plan_outcome.h"
#include "planner/estimate.h"

namespace plimsoll::cli {

// Where simulate_rows finds nothing: what holds least, asked of lowering, which has the last word on what fits. Fills the outcome's row
// with the fastest of what was found, or its refusal with the least that any plan needs.
//
// Gives the row as it was estimated; nullopt where nothing fits.
std::optional<Candidate> simulate_leanest(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins);

// From the first row, where something of it lives in a slower tier, to what is beside it and faster, as far as that is quick; `best` is
// that row as it was estimated.
//
// Gives what took its place as it was estimated; nullopt where nothing did.
std::optional<Candidate> simulate_steps(Outcome& outcome, planner::Estimator& estimator, const planner::Pins& pins, const Candidate& best);

}  // namespace plimsoll::cli
