#include "strategy/forward.h"

#include "base/error.h"
#include "strategy/legality.h"

namespace plimsoll::strategy {

Strategy without_training(const Strategy& strategy) {
  Strategy forward = strategy;
  const Strategy fresh;
  if (strategy.zero < 3) forward.zero = forward.zero_group = 0;
  forward.reduce = fresh.reduce;
  forward.recompute = fresh.recompute;
  forward.recompute_every = fresh.recompute_every;
  forward.recompute_memory = fresh.recompute_memory;
  forward.split_activations = false;
  forward.offload = {};
  forward.offload.params = strategy.offload.params;
  forward.chunks = fresh.chunks;
  forward.schedule = fresh.schedule;
  forward.flush_every = fresh.flush_every;
  forward.keep_params = fresh.keep_params;
  forward.keep_grads = fresh.keep_grads;
  forward.delayed_update = false;
  forward.carry_update = fresh.carry_update;
  // Several stages on a rank shorten the wait at both ends of a step; without a backward pass they only send more.
  if (strategy.chunks > 1 && forward.partition == StagePartition::listed) {
    forward.partition = StagePartition::equal;
    forward.stages.clear();
  }
  return forward;
}

void require_legal_without_training(const Strategy& strategy, bool continues_text) {
  Strategy checked = without_training(strategy);
  checked.offload.optimizer = checked.offload.params;  // there is none to be nearer to the device than the weights
  require_legal(checked, checked.turn());
  if (continues_text && checked.turn() > 1) {
    base::not_legal(
        "this strategy cannot write a text: the data ranks of its \"stages\" take micro-batches in turn, and a text is one; use \"data\": "
        "1 for every stage");
  }
}

}  // namespace plimsoll::strategy
