#include "graph/live_rows.h"

#include "base/error.h"

namespace plimsoll::graph {

LiveRows::LiveRows(const Graph& graph) : graph_(graph), of_(graph.values.size()) {
  for (std::uint32_t index = 0; index < graph.values.size(); ++index) {
    if (!graph.values[ValueId{index}].live.count.valid()) continue;
    of_[index] = ValueId{index};
    any_ = true;
  }
  if (!any_) return;
  for (const Node& node : graph.nodes) {
    const Live* live = of(node);
    if (live == nullptr) continue;
    ValueId root;
    for (ValueId id : node.inputs) {
      if (const Live* other = of(id)) {
        root = of_[id.index];
        if (other->count != live->count)
          base::not_legal("[{}] has operands with rows of two counts, {} and {}", ops::name_of(node.op), graph.values[live->count].name,
                          graph.values[other->count].name);
      }
    }
    const auto fact = ops::definition_of(node.op).live_rows;
    const std::optional<int> results = fact != nullptr ? fact(node.op) : std::nullopt;
    if (!results) {
      base::not_legal(
          "[{}] needs all rows of its operands, but of {} only the first so many hold anything: use operators that work row by row",
          ops::to_string(node.op), graph.values[root].name);
    }
    for (std::size_t output = 0; output < static_cast<std::size_t>(*results); ++output) of_[node.outputs[output].index] = root;
  }
}

const Live* LiveRows::of(const Node& node) const {
  for (ValueId id : node.inputs) {
    if (const Live* live = of(id)) return live;
  }
  return nullptr;
}

}  // namespace plimsoll::graph
