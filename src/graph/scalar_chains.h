// The block of step scalars is passed from node to node, each of which works on it in place: a chain of values in one memory. The step's
// own begins with Graph::scalars. A pass may begin others, for sums that ranks exchange before they are added to the step's.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll::graph {

class ScalarChains {
 public:
  explicit ScalarChains(const Graph& graph);

  // The value that the chain of `id` begins with; invalid where it is on none.
  ValueId of(ValueId id) const { return first_[id.index]; }
  bool has(ValueId id) const { return of(id).valid(); }
  // The last value of a chain.
  ValueId newest(ValueId first) const { return newest_[first.index]; }

 private:
  std::vector<ValueId> first_;   // by value
  std::vector<ValueId> newest_;  // by first value
};

}  // namespace plimsoll::graph
