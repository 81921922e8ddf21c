// When updates are made.
#include "strategy/dimensions.h"
#include "strategy/legality.h"

namespace plimsoll::strategy {

namespace {

void delayed_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  if (!strategy.delayed_update) return;
  reasons.against(!strategy.offload.optimizer.anything(),
                  "\"delayed_update\" is true, but updates on the device have nothing to run under; use \"offload.optimizer\": \"host\", "
                  "or false");
  reasons.against(is_part(strategy.offload.optimizer),
                  "\"delayed_update\" is true, but the device updates its share of \"offload.optimizer\" inside the step; use shares of "
                  "\"host\" and \"disk\" that are all of it");
  reasons.against(strategy.offload.gradients.anything(),
                  "\"delayed_update\" keeps gradients where the optimizer state is until the next step; use \"offload.gradients\": "
                  "\"none\"");
  reasons.against(!synchronous(strategy),
                  "\"delayed_update\" is true, but with \"{}\" updates run beside later micro-batches already; use false, or "
                  "\"schedule\": \"1f1b\"",
                  strategy.schedule);
}

void carry_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  if (strategy.carry_update != CarryUpdate::always) return;
  constexpr std::string_view kAlways = "\"carry_update\" is \"always\", but";
  reasons.against(!strategy.offload.optimizer.anything(),
                  "{} updates on the device have nothing to run under; use \"offload.optimizer\": \"host\", or \"auto\"", kAlways);
  reasons.against(strategy.delayed_update, "{} with \"delayed_update\" updates have a whole step to run under; use \"auto\"", kAlways);
  reasons.against(!synchronous(strategy), "{} with \"{}\" no step ends before the next begins; use \"auto\"", kAlways, strategy.schedule);
  reasons.against(gathers_parts(strategy),
                  "{} with \"zero\": {} ranks gather what the device and what the host updated together; use shares of "
                  "\"offload.optimizer\" whose sum is 1, or \"auto\"",
                  kAlways, strategy.zero);
}

}  // namespace

std::vector<Dimension> update_dimensions() {
  return {
      {.key = "delayed_update",
       .about = "Update with the previous step's gradients, while the device computes the next ones (`offload.optimizer`).",
       .form = Flag{&Strategy::delayed_update},
       .add_reasons = delayed_reasons},
      {.key = "carry_update",
       .about = "Updates of the host that clipping holds back run under the next forward pass (auto: beside a GPU, where memory allows).",
       .form = word<&Strategy::carry_update, kCarryUpdateWords>(),
       .add_reasons = carry_reasons},
  };
}

}  // namespace plimsoll::strategy
