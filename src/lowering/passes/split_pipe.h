// The graph of one place on the pipe axis: its stages, with messages where a value comes from another place or is needed there.
//
// A weight that two places read (the token table of a tied head) is on both: each sums its own part of the gradient over the
// micro-batches, the parts are added up once, and both make the same update. The norm's squares and the losses of all places are
// added up before the verdict.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "ops/placement.h"
#include "plan/plan.h"

namespace plimsoll::lowering {

// Which place runs which block.
struct Pipe {
  std::int32_t places = 1;
  bool apart = false;  // every place updates its weights when it has their gradients; sums over places are for people alone
  std::vector<std::int32_t> stage_of_block;
  std::vector<std::int32_t> place_of_stage;

  std::int32_t place_of(graph::BlockId block) const { return place_of_stage[static_cast<std::size_t>(stage_of_block[block.index])]; }
};

// A rank where places have degrees of their own. The first rank of each place meets those of the others and tells the ranks beside it.
struct Corner {
  std::int64_t data = 1;  // ranks of its place
  std::int64_t tensor = 1;
  bool first = true;
};

graph::Graph split_over_pipe(const graph::Graph& graph, const Pipe& pipe, std::int32_t place, const std::optional<Corner>& corner = {});

// Where places have tensor axes of different widths, all ranks have the whole of what is sent: who sends it to whom.
graph::Graph route_messages(const graph::Graph& graph, const plan::Mesh& mesh, const ops::Seat& seat);

// The place that shares a weight with the first; 0 if none does.
std::int32_t tied_place(const graph::Graph& graph, const Pipe& pipe);

// Moves what only the gradients of weights need to the phase backward_weight, after the rest of its stage's backward pass. Rows that tensor
// ranks gathered for the backward pass are gathered again there: a rank keeps its own rows in between, not those of all. Without
// `gathers_again` it keeps all, as a backward pass in one piece does.
graph::Graph split_backward(const graph::Graph& graph, bool gathers_again = true);

}  // namespace plimsoll::lowering
