// A plan without memory, for clusters where a whole one would be too large: the train program of every place of the pipe axis, as
// the first place of the tensor axis runs it, its calls and tokens those that `lower` makes.
//
// Places that have the same blocks at the same ends of the model share graphs and procedures; only their order and whom they talk to
// is their own. There are no buffers: a call binds none (but for the first of each procedure, which shows in which tiers its operands
// are). A class's arena is that of the plan where there are few lifetimes to lay out, so that the two forms agree to the byte; else it
// is the most that lives at once, which an arena with its gaps exceeds a little.
#pragma once

#include "lowering/lower.h"

namespace plimsoll::lowering {

plan::Plan outline(const LoweringInputs& inputs);

}  // namespace plimsoll::lowering
