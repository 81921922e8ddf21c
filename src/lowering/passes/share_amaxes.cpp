#include "lowering/passes/share_amaxes.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "graph/rewrite.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

bool notes(const Node& node) { return std::holds_alternative<ops::NoteAmax>(node.op); }

// Everybody's, instead of this rank's: what the nodes [begin, end) note, in one message for each axis.
std::vector<ValueId> gathered(graph::Rewrite& to, const std::vector<Node>& nodes, const ops::Axis& axis, std::int64_t members) {
  std::vector<ValueId> amaxes;
  for (const Node& node : nodes) amaxes.push_back(node.inputs[1]);
  const ops::Collective gather{
      .kind = ops::CollectiveKind::all_gather, .axis = axis, .members = members, .tensors = static_cast<std::int64_t>(amaxes.size())};
  return to.make(gather, amaxes, graph::beside(nodes.front()), to.to().values[amaxes.front()].name + ".all");
}

void append_run(graph::Rewrite& to, std::vector<Node>& run, const AmaxRanks& ranks) {
  if (run.empty()) return;
  for (const auto& [axis, members] : ranks.axes) {
    const std::vector<ValueId> all = gathered(to, run, axis, members);
    for (std::size_t index = 0; index < run.size(); ++index) run[index].inputs[1] = all[index];
  }
  for (const Node& node : run) to.keep(node);
  run.clear();
}

}  // namespace

bool notes_amaxes(const Graph& graph) { return std::any_of(graph.nodes.begin(), graph.nodes.end(), notes); }

Graph share_amaxes(const Graph& graph, const AmaxRanks& ranks) {
  graph::Rewrite shared(graph);
  std::vector<Node> run;  // of one block and phase, side by side
  for (const Node& node : graph.nodes) {
    if (!run.empty() && !(notes(node) && node.block == run.front().block && node.phase == run.front().phase))
      append_run(shared, run, ranks);
    if (!notes(node)) {
      shared.keep(node);
      continue;
    }
    if (ranks.in_turn) {
      base::not_legal(
          "\"fp8.history\" is not 0, but the data ranks of each stage take micro-batches in turn and have no history in common; use "
          "\"fp8.history\": 0, or the same degrees for all stages");
    }
    run.push_back(node);
  }
  append_run(shared, run, ranks);
  return shared.take();
}

}  // namespace plimsoll::lowering
