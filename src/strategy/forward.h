// What a strategy says where nothing is trained: of evaluation, and of a text that a model writes. There are weights and a forward pass, so
// where weights lie and who computes what stays as it is; optimizer state, gradients, what is kept for a backward pass, and the order in
// which a pipeline's passes take turns do not exist.
#pragma once

#include "strategy/strategy.h"

namespace plimsoll::strategy {

// The same ranks, with each weight where training has it, and nothing that only training needs.
Strategy without_training(const Strategy& strategy);

// not_legal with the reasons. `continues_text`: it writes, one token at a time.
void require_legal_without_training(const Strategy& strategy, bool continues_text);

}  // namespace plimsoll::strategy
