#include "lowering/passes/send_copies.h"

#include <algorithm>

#include "graph/rewrite.h"

namespace plimsoll::lowering {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;

bool is_on_host(const Graph& graph, const Node& node) {
  return is_update(node.op) && graph.values[node.outputs[0]].tier == ops::Tier::host;
}

// The node behind this one that does something, where it runs with it.
std::optional<NodeId> next_beside(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  for (NodeId next{id.index + 1}; next.index < graph.nodes.size(); ++next.index) {
    const Node& behind = graph.nodes[next];
    if (behind.block != node.block || behind.phase != node.phase || behind.turn != node.turn || behind.ahead != node.ahead) break;
    if (!ops::is_view(behind.op)) return next;
  }
  return std::nullopt;
}

// The update with what the node behind it makes of its weight; nullopt where that is something else.
std::optional<ops::Op> sending(const Graph& graph, const Node& update, const Node& behind) {
  const auto form = ops::definition_of(update.op).sending;
  const graph::ValueId weight = update.outputs[0];
  if (form == nullptr || graph.values[weight].type.dtype != base::DType::f32 || behind.inputs != std::vector{weight}) return std::nullopt;
  return form(update.op, behind.op);
}

}  // namespace

bool updates_on_host(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) { return is_on_host(graph, node); });
}

Graph send_copies(const Graph& graph) {
  graph::Rewrite rewrite(graph);
  std::vector<bool> sent(graph.nodes.size(), false);
  for (NodeId id{0}; id.index < graph.nodes.size(); ++id.index) {
    if (sent[id.index]) continue;
    Node node = graph.nodes[id];
    if (is_on_host(graph, node)) {
      const std::optional<NodeId> next = next_beside(graph, id);
      const std::optional<ops::Op> sends = next ? sending(graph, node, graph.nodes[*next]) : std::nullopt;
      const auto copy_leaves = ops::definition_of(node.op).copy_leaves;
      const std::optional<ops::Op> leaves = copy_leaves == nullptr ? std::nullopt : copy_leaves(node.op);
      if (sends) {
        node.op = *sends;
        node.outputs.push_back(graph.nodes[*next].outputs[0]);
        sent[next->index] = true;
      } else if (leaves) {
        node.op = *leaves;
      }
    }
    rewrite.keep(std::move(node));
  }
  return rewrite.take();
}

}  // namespace plimsoll::lowering
