// The passes from a model's forward pass to the graph of a program, as a list: each says whether it has anything to do, and the graph that
// it leaves is verified before the next one runs. `plimsoll plan --passes` prints it ahead of lowering's (lowering/pass_table.h).
#pragma once

#include <span>
#include <string_view>

#include "graph/builder.h"
#include "graph/graph.h"
#include "model/training.h"

namespace plimsoll::graph {

// What they know beside the graph.
struct BuildInputs {
  Purpose purpose = Purpose::train;
  const model::Training& training;
};

struct BuildPass {
  std::string_view name;
  std::string_view does;
  bool (*applies)(const BuildInputs& inputs);
  void (*run)(Graph& graph, const BuildInputs& inputs);
};

// In the order in which they run.
std::span<const BuildPass> build_passes();

// `done`, where given, is told of every pass that had something to do, and the graph that it left.
void run_build_passes(Graph& graph, const BuildInputs& inputs, const PassDone& done = {});

}  // namespace plimsoll::graph
