// Which strategies can be run, and why the others cannot.
#pragma once

#include <string>
#include <vector>

#include "strategy/strategy.h"

namespace plimsoll::strategy {

// Every reason against the strategy, each with what was found and the nearest that would do; empty: it is legal.
std::vector<std::string> reasons_against(const Strategy& strategy);

// not_legal with all reasons.
void require_legal(const Strategy& strategy);

// "data 2 x tensor 1 x pipe 2", or the degrees of each stage.
std::string mesh_text(const Strategy& strategy);

// "data 2 x tensor 1 x pipe 2, ZeRO 1, 1f1b, recompute full" - one line for people.
std::string describe(const Strategy& strategy);

// Whether all micro-batches of a step use the same weights: there is no pipeline, or its schedule ends every step with a flush.
bool synchronous(const Strategy& strategy);

// Whether ranks gather weights of which the device updates some and the host others.
bool gathers_parts(const Strategy& strategy);

}  // namespace plimsoll::strategy
