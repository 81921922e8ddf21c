// Which strategies can be run, and why the others cannot.
#pragma once

#include <string>
#include <vector>

#include "strategy/strategy.h"

namespace plimsoll::strategy {

// Every reason against the strategy for steps of so many micro-batches, each with what was found and the nearest that would do; empty:
// it is legal.
std::vector<std::string> reasons_against(const Strategy& strategy, std::int64_t micro_batches);

// not_legal with all reasons.
void require_legal(const Strategy& strategy, std::int64_t micro_batches);

// Parts of it, for who looks through many strategies. Gradients may leave the device between micro-batches: each one's are summed over
// all data ranks before the next. Weights may live elsewhere: every rank updates all that it computes with, or its shard alone.
bool gradients_may_leave(const Strategy& strategy, std::int64_t micro_batches);
bool weights_may_leave(const Strategy& strategy);

// Some of it stays on the device.
bool is_part(const TierShare& share);

// Of axes beside data, tensor and pipe: " x replica 2".
std::string more_text(const Strategy& strategy);

// "data 2 x tensor 1 x pipe 2", or the degrees of each stage.
std::string mesh_text(const Strategy& strategy);

// "data 2 x tensor 1 x pipe 2, ZeRO 1, 1f1b, recompute full" - one line for people.
std::string describe(const Strategy& strategy);

// Whether every step ends before the next begins, so that all its micro-batches use the same weights: no pipeline, or a flush each.
bool synchronous(const Strategy& strategy);
// Whether the schedule's name is one that can do without, though it flush after every step.
bool made_without_flush(const Strategy& strategy);

// Whether ranks gather weights of which the device updates some and the host others.
bool gathers_parts(const Strategy& strategy);

}  // namespace plimsoll::strategy
