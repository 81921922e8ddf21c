// Which values of a tensor rank's graph every other tensor rank computes too, to the bit.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace plimsoll::lowering {

// By value. It errs on the safe side: what is not known to be the same counts as different.
std::vector<bool> same_on_tensor_ranks(const graph::Graph& graph);

}  // namespace plimsoll::lowering
