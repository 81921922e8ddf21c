// First contents of everything that outlives a step.
#pragma once

#include <cstdint>

#include "executor/core/executor.h"
#include "graph/graph.h"

namespace plimsoll::train {

// Weights are drawn by (seed, parameter name, element), so they do not depend on the strategy; states start at zero.
void initialise(const graph::Graph& graph, executor::Executor& executor, std::uint64_t seed);

// The weights a model computes with, from their f32 masters (after loading a checkpoint or a model file).
void refresh_copies(const graph::Graph& graph, executor::Executor& executor);

}  // namespace plimsoll::train
