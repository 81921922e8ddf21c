// What the forward pass keeps for the backward pass, and what is made again.
#include "strategy/dimensions.h"

namespace plimsoll::strategy {

namespace {

void every_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  reasons.against(strategy.recompute_every > 1 && strategy.recompute != Recompute::full,
                  "\"recompute_every\" is {}, which belongs to \"recompute\": \"full\", but \"recompute\" is \"{}\"; use 1",
                  strategy.recompute_every, name_of(strategy.recompute));
}

void memory_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  reasons.against(strategy.recompute_memory > 0.0 && strategy.recompute != Recompute::optimal,
                  "\"recompute_memory\" is {}, which belongs to \"recompute\": \"optimal\", but \"recompute\" is \"{}\"; use 0",
                  strategy.recompute_memory, name_of(strategy.recompute));
}

void split_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  if (!strategy.split_activations) return;
  reasons.against(strategy.widest_tensor() == 1,
                  "\"split_activations\" is true, but the tensor axis has one rank; use false, or a larger \"tensor\"");
  reasons.against(strategy.sequence_parallel,
                  "\"split_activations\" is true, but with \"sequence_parallel\" no tensor rank has what others have; use one of them");
  reasons.against(strategy.recompute == Recompute::optimal,
                  "\"split_activations\" is true, but \"recompute\": \"optimal\" counts activations as whole; use \"full\" or "
                  "\"selective\"");
}

}  // namespace

std::vector<Dimension> recompute_dimensions() {
  return {
      {.key = "recompute",
       .about = "Which activations are computed again in the backward pass.",
       .form = word<&Strategy::recompute, kRecomputeWords>(),
       .listed = true},
      {.key = "recompute_every",
       .about = "Full recompute: of how many blocks one keeps its input.",
       .form = Count{&Strategy::recompute_every, 1},
       .add_reasons = every_reasons},
      {.key = "recompute_memory",
       .about = "Optimal recompute: share of the activation memory it may use; 0 = what `limits.device` leaves.",
       .form = Part{&Strategy::recompute_memory},
       .add_reasons = memory_reasons},
      {.key = "split_activations",
       .about = "Of activations that all `tensor` ranks have, each keeps a part (ZeRO-R); they are gathered for the backward pass.",
       .form = Flag{&Strategy::split_activations},
       .add_reasons = split_reasons},
  };
}

}  // namespace plimsoll::strategy
