// Plans and outlines of small and large models for the simulator's tests.
#pragma once

#include "cluster/presets.h"
#include "executor/sim/simulate.h"
#include "families/families.h"
#include "graph/programs/programs.h"
#include "lowering/lower.h"
#include "lowering/outline.h"

namespace plimsoll::executor::sim {

struct Layout {
  std::int64_t layers = 4;
  std::int64_t width = 64;
  std::int64_t heads = 4;
  std::int64_t vocab = 256;
  std::int64_t sequence = 32;
  std::int64_t micro = 1;
  std::int32_t micro_batches = 4;
  model::Precision precision = model::Precision::bf16;
  bool tied = true;
  double clip = 1.0;
  strategy::Strategy strategy{};
};

inline ops::KernelChoice any_kernel(const ops::KernelQuery& query) { return {std::string(ops::name_of(query.op)), 0}; }

inline graph::Graph graph_of(const Layout& layout) {
  model::Model model = families::defaults(families::gpt2());
  model.layers = layout.layers;
  model.width = layout.width;
  model.heads = model.kv_heads = layout.heads;
  model.head_dim = layout.width / layout.heads;
  model.ffn = 4 * layout.width;
  model.context = layout.sequence;
  model.vocab = layout.vocab;
  model.tied = layout.tied;
  model::Training training;
  training.precision = layout.precision;
  training.micro_batch = {.samples = layout.micro, .sequence = layout.sequence};
  training.accumulates = layout.micro_batches > 1;
  training.fused_head = layout.strategy.tensor == 1;
  training.optimizer.clip = layout.clip;
  training.masters = layout.strategy.offload.optimizer.anything();
  return graph::training_graph(model, training);
}

inline plan::Plan whole_plan(const Layout& layout) {
  const graph::Graph graph = graph_of(layout);
  return lowering::lower(
      {.model = "test", .programs = {{"train", graph, layout.micro_batches}}, .strategy = layout.strategy, .choose = any_kernel});
}

inline plan::Plan outline_plan(const Layout& layout) {
  const graph::Graph graph = graph_of(layout);
  return lowering::outline(
      {.model = "test", .programs = {{"train", graph, layout.micro_batches}}, .strategy = layout.strategy, .choose = any_kernel});
}

}  // namespace plimsoll::executor::sim
