// What tensor ranks and the stages of a pipeline send each other, as a codec's to say (codecs/codec.h): activations on the way forward,
// their gradients on the way back.
#pragma once

#include "codecs/codec.h"
#include "graph/graph.h"

namespace plimsoll::lowering {

graph::Graph encode_activations(const graph::Graph& graph, const codecs::Choice& choice);

}  // namespace plimsoll::lowering
