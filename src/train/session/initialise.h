// First contents of everything that outlives a step.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/group.h"
#include "executor/core/executor.h"
#include "graph/graph.h"

namespace plimsoll::train {

struct InitialValues {
  std::uint64_t seed = 1;
  bool parameters = true;  // false: they come from elsewhere
};

// Weights are drawn by (seed, parameter name, element), so they do not depend on the strategy; states start at zero.
void initialise(const graph::Graph& graph, executor::Executor& executor, const InitialValues& with);

// What elements of one parameter, from `first` on, start with, in f32.
void initial_values(const graph::Graph& graph, const graph::Parameter& parameter, std::uint64_t seed, std::int64_t first,
                    std::span<float> out);

// The weights a model computes with, from their f32 masters (after loading a checkpoint or a model file).
// `sharing` joins the ranks that share tensors out, where there are several: all of them call this together.
void refresh_copies(const graph::Graph& graph, executor::Executor& executor, collectives::Group* sharing);

}  // namespace plimsoll::train
