// In which tier tensors live, and in which pieces they come from there.
#include "strategy/dimensions.h"
#include "strategy/legality.h"

namespace plimsoll::strategy {

namespace {

// How far from the device: 0 there, 1 in the host's memory, 2 on disk.
int distance(const TierShare& share) { return share.disk > 0.0 ? 2 : share.host > 0.0 ? 1 : 0; }

bool in_one_tier(const TierShare& share) { return !share.anything() || share == TierShare{.host = 1.0} || share == TierShare{.disk = 1.0}; }

// Weights and gradients are where the update that reads them is, or nearer.
std::string_view tier_of_both(const Offload& offload) {
  return distance(offload.params) == 2 || distance(offload.gradients) == 2 ? "disk" : "host";
}

void optimizer_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  const Offload& offload = strategy.offload;
  reasons.against(is_part(offload.optimizer) && (offload.gradients.anything() || offload.params.anything()),
                  "\"offload.optimizer\" leaves a part of the state on the device, which would update weights and read gradients that are "
                  "elsewhere; use \"none\" for \"offload.gradients\" and \"offload.params\", or shares of \"offload.optimizer\" whose sum "
                  "is 1");
}

void gradients_reasons(const Strategy& strategy, std::int64_t micro_batches, Reasons& reasons) {
  const Offload& offload = strategy.offload;
  if (!offload.gradients.anything()) return;
  reasons.against(!in_one_tier(offload.gradients),
                  "\"offload.gradients\" asks for a part, but gradients can only be all in one tier; use \"host\" or \"disk\"");
  reasons.against(!offload.optimizer.anything(),
                  "\"offload.gradients\" moves gradients to where no update reads them; use \"offload.optimizer\": \"{}\" too",
                  tier_of_both(offload));
  if (gradients_may_leave(strategy, micro_batches)) return;
  constexpr std::string_view kLeave = "\"offload.gradients\" moves gradients out after every micro-batch, but";
  const bool groups = strategy.zero >= 2 && !strategy.keep_grads;
  reasons.against(groups,
                  "{} groups of {} data ranks (\"zero_group\") are summed after the last of {}; use \"zero_group\": 0, or one micro-batch",
                  kLeave, strategy.zero_group, micro_batches);
  reasons.against(!groups,
                  "{} the data ranks keep them whole until the last of {}; use \"zero\": 2 or 3 with \"keep_grads\": false, or one "
                  "micro-batch",
                  kLeave, micro_batches);
}

void params_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  const Offload& offload = strategy.offload;
  if (!offload.params.anything()) return;
  reasons.against(!in_one_tier(offload.params),
                  "\"offload.params\" asks for a part, but params can only be all in one tier; use \"host\" or \"disk\"");
  reasons.against(distance(offload.params) > distance(offload.optimizer),
                  "\"offload.params\" is farther away than \"offload.optimizer\", which updates them; use \"{}\" for both",
                  tier_of_both(offload));
  reasons.against(!weights_may_leave(strategy),
                  "\"offload.params\" with \"zero\": {} would gather updated weights in the host's memory; use \"zero\": 3, in which each "
                  "rank has its own shard, or 0, in which each has all",
                  strategy.zero);
  reasons.against(!synchronous(strategy) && offload.params.disk > 0.0,
                  "\"offload.params\" is on disk, but \"{}\" puts older versions of the weights aside, which is done in memory alone; use "
                  "\"host\", or \"schedule\": \"1f1b\"",
                  strategy.schedule);
}

void activations_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  const TierShare& share = strategy.offload.activations;
  reasons.against(share.host > 0.0 && share.disk > 0.0,
                  "\"offload.activations\" names two tiers, but what leaves goes to one; use a share of \"host\" or of \"disk\"");
}

// Rows of a table on disk go back there at the end of the step that brought them.
void rows_reasons(const Strategy& strategy, std::int64_t, Reasons& reasons) {
  if (strategy.embedding_rows != EmbeddingRows::disk) return;
  constexpr std::string_view kDisk = "\"embedding_rows\" is \"disk\", but with";
  reasons.against(strategy.delayed_update, "{} \"delayed_update\" a gradient waits until other rows are there; use false, or \"whole\"",
                  kDisk);
  reasons.against(strategy.carry_update == CarryUpdate::always,
                  "{} \"carry_update\": \"always\" an update waits until other rows are there; use \"auto\", or \"whole\"", kDisk);
  reasons.against(!synchronous(strategy),
                  "{} \"{}\" several steps are under way, each with rows of its own; use \"schedule\": \"1f1b\", or \"whole\"", kDisk,
                  strategy.schedule);
}

}  // namespace

std::vector<Dimension> tier_dimensions() {
  return {
      {.key = "offload.optimizer",
       .about = "Tier of optimizer state and master weights.",
       .form = Tiers{&Offload::optimizer},
       .add_reasons = optimizer_reasons},
      {.key = "offload.gradients", .about = "Tier of gradients.", .form = Tiers{&Offload::gradients}, .add_reasons = gradients_reasons},
      {.key = "offload.params", .about = "Tier of weights.", .form = Tiers{&Offload::params}, .add_reasons = params_reasons},
      {.key = "offload.activations",
       .about = "Tier of saved activations.",
       .form = Tiers{&Offload::activations},
       .add_reasons = activations_reasons},
      {.key = "tile",
       .about = "Largest weight matrix that is computed with whole; larger ones are fetched, used and updated by tiles of rows. 0 = all.",
       .form = Size{&Strategy::tile}},
      {.key = "embedding_rows",
       .about = "Where the token table is: whole with the other weights, or on disk, whence a step brings the rows that it reads and the "
                "optimizer updates those alone (untied models).",
       .form = word<&Strategy::embedding_rows, kEmbeddingRowsWords>(),
       .add_reasons = rows_reasons},
  };
}

}  // namespace plimsoll::strategy
