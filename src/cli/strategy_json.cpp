#include "cli/strategy_json.h"

#include <array>
#include <string_view>

namespace plimsoll::cli {

namespace {

base::Json stages_json(const strategy::Strategy& strategy) {
  if (strategy.partition == strategy::StagePartition::equal) return base::Json("equal");
  if (strategy.partition == strategy::StagePartition::by_cost) return base::Json("cost");
  base::Json stages = base::Json::array();
  for (const strategy::Stage& stage : strategy.stages) {
    if (stage.data == 0 && stage.tensor == 0) {
      stages.push(stage.blocks);
    } else {
      stages.push(base::Json::object({{"blocks", stage.blocks}, {"data", stage.data}, {"tensor", stage.tensor}}));
    }
  }
  return stages;
}

}  // namespace

base::Json strategy_json(const planner::Choice& choice) {
  const strategy::Strategy& strategy = choice.strategy;
  constexpr std::array<std::string_view, 4> kRecompute{"none", "full", "selective", "optimal"};
  base::Json json = base::Json::object({{"data", strategy.data},
                                        {"tensor", strategy.tensor},
                                        {"pipe", strategy.pipe},
                                        {"chunks", strategy.chunks},
                                        {"zero", strategy.zero},
                                        {"zero_group", strategy.zero_group},
                                        {"keep_params", strategy.keep_params},
                                        {"keep_grads", strategy.keep_grads},
                                        {"sequence_parallel", strategy.sequence_parallel},
                                        {"schedule", strategy.schedule},
                                        {"stages", stages_json(strategy)},
                                        {"recompute", kRecompute.at(static_cast<std::size_t>(strategy.recompute))}});
  if (!strategy.more.empty()) {
    base::Json more = base::Json::object();
    for (const auto& [row, degree] : strategy.more) more.set(row.axis.name(), base::Json(degree));
    json.set("axes", std::move(more));
  }
  const strategy::Strategy usual;
  if (strategy.bucket != usual.bucket) json.set("bucket", base::Json(strategy.bucket.count));
  if (strategy.prefetch != usual.prefetch) json.set("prefetch", base::Json(strategy.prefetch));
  if (strategy.recompute_every != usual.recompute_every) json.set("recompute_every", base::Json(strategy.recompute_every));
  if (strategy.split_activations) json.set("split_activations", base::Json(true));
  if (strategy.tile.count > 0) json.set("tile", base::Json(strategy.tile.count));
  if (strategy.embedding_rows == strategy::EmbeddingRows::disk) json.set("embedding_rows", base::Json("disk"));
  const strategy::Offload& offload = strategy.offload;
  if (offload == strategy::Offload{}) return json;
  base::Json tiers = base::Json::object();
  for (const auto& [name, share] : {std::pair{"optimizer", offload.optimizer},
                                    {"gradients", offload.gradients},
                                    {"params", offload.params},
                                    {"activations", offload.activations}}) {
    if (share.anything()) tiers.set(name, base::Json(share.disk > 0.0 ? "disk" : "host"));
  }
  json.set("offload", std::move(tiers));
  return json;
}

}  // namespace plimsoll::cli
