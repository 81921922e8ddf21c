// Chooses what is made again in the backward pass, and where that is to be the fastest way within a limit, searches for it: the
// chain's model of memory proposes, the plan it gives is measured, so that the limit holds to the byte.
#pragma once

#include <functional>

#include "lowering/lower.h"
#include "lowering/passes/recompute.h"

namespace plimsoll::lowering {

// The plan of the inputs, or of the same with fewer micro-batches, with an order of what is made again.
using LowerWith = std::function<plan::Plan(const LoweringInputs&, const RecomputeOrder&)>;

// not_legal, with the least that was found, when the limit cannot be kept.
plan::Plan fit_recompute(const LoweringInputs& inputs, const LowerWith& lower_with);

// What `lower_with` makes of the inputs; where updates may wait for the next step but the host's memory has no room for what waits, what it
// makes without. `folded`: ranks that a rank of the plan stands for.
plan::Plan fit_update(const LoweringInputs& inputs, std::int64_t folded,
                      const std::function<plan::Plan(const LoweringInputs&)>& lower_with);

// The most bytes of activations alive at once in a training step, on the rank that has most.
base::Bytes most_activations(const plan::Plan& plan);

}  // namespace plimsoll::lowering
