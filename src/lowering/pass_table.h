// The passes from a program's graph to the graph of one rank, as a list: each says whether it has anything to do, and the graph that it
// leaves is verified before the next one runs. `plimsoll plan --passes` prints the list.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "lowering/lower.h"
#include "lowering/passes/recompute.h"
#include "lowering/passes/split_pipe.h"
#include "lowering/tiers.h"
#include "ops/placement.h"
#include "plan/plan.h"
#include "strategy/strategy.h"

namespace plimsoll::lowering {

// What passes may know beside the graph: the rank's place, and what was decided for all ranks.
struct PassInputs {
  strategy::Strategy strategy;  // of the rank's stage, with its own degrees
  const plan::Mesh& mesh;
  const Pipe& pipe;
  const RecomputeOrder& again;
  std::int32_t rank = 0;  // the first of those that run its program; the mesh says where it is on each axis
  std::int32_t pipe_place = 0;
  ops::Seat seat{};                // on the tensor axis
  std::optional<Corner> corner{};  // where places of the pipe axis have degrees of their own
  std::int32_t micro_batches = 1;  // of the rank, in a step
  bool backward = false;           // the program has a backward pass
  bool splits_backward = false;    // the schedule has items for the gradients of weights
  HostUpdate update = HostUpdate::none;
  bool host_beside = false;          // the host is another processor than the device
  bool waiting_update_only = false;  // of HostUpdate::under_forward: what makes the update that waits, and nothing else
};

struct Pass {
  std::string_view name;
  std::string_view does;
  bool (*applies)(const graph::Graph& graph, const PassInputs& inputs);
  graph::Graph (*run)(const graph::Graph& graph, const PassInputs& inputs);
  bool bounded_rows = false;  // it takes graphs with bounded rows (graph/live_rows.h)
  bool of_place = false;      // all ranks at a place of an even mesh's pipe axis get the same of it; such passes come first
};

// In the order in which they run.
std::span<const Pass> passes();

struct PassLine {
  std::string_view name;
  std::string_view does;
};
// All passes from a model's forward pass on, in order: those that build a program's graph (graph/programs/pass_table.h), the one that
// changes the graphs of all programs (rows.h), and those of this table.
std::vector<PassLine> all_passes();

// Those that all ranks of a place on the pipe axis have in common (Pass::of_place) need not run for each of them.
enum class PassRange : std::uint8_t { all, of_place, after_place };

graph::Graph run_passes(const graph::Graph& graph, const PassInputs& inputs, PassRange range = PassRange::all,
                        const graph::PassDone& done = {});

}  // namespace plimsoll::lowering
