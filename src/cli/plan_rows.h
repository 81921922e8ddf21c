// The simulator's word on what a search found. Estimates choose what is looked at; which strategy is best, and whether it fits at all,
// is said by the plan that training would run.
#pragma once

#include <cstddef>
#include <optional>

#include "cli/plan_outcome.h"
#include "planner/estimate.h"

namespace plimsoll::cli {

// Fills the outcome's rows: the best strategy of each division of the ranks, at most `most` of them, best first. The first row is always
// simulated; others are as far as that is quick. A division whose best strategy does not fit after all is repaired before it is given
// up, and what was refused is kept with the reason.
//
// Gives the first row as it was estimated; nullopt where nothing fits.
std::optional<Candidate> simulate_rows(Outcome& outcome, planner::Estimator& estimator, std::size_t most);

// Of what lies beside the best, the most promising are simulated too, as far as that is quick; the others stay estimated, in the measure
// of the best.
//
// Gives the fastest of them as it was estimated where it beats the best after all; it is then the first row.
std::optional<Candidate> simulate_verdicts(Outcome& outcome, const Candidate& best);

}  // namespace plimsoll::cli
