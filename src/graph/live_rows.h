// Tensors of which only the first rows hold anything.
//
// A root may say that its rows are bounded (Value::live): it has room for `bound` rows, and the value `count` says in every micro-batch how
// many of them hold something. What is made of such rows, row by row, has as many; a sum over rows is over those there are. Which is which
// every operator says (ops::Definition::live_rows), and one that needs all rows is refused. Memory is planned for the bound, and prices are
// those of the expected share. A batch with more rows than there is room for is noted (ops::CheckRows), and ends the step on all ranks.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll::graph {

class LiveRows {
 public:
  // not_legal with the operator's name where one needs all rows.
  explicit LiveRows(const Graph& graph);

  bool any() const { return any_; }
  // Null: the value is whole.
  const Live* of(ValueId id) const { return of_[id.index].valid() ? &graph_.values[of_[id.index]].live : nullptr; }
  // That of the operands of a node; null: they are all whole.
  const Live* of(const Node& node) const;

 private:
  const Graph& graph_;
  std::vector<ValueId> of_;  // by value: the root whose rows it has
  bool any_ = false;
};

}  // namespace plimsoll::graph
