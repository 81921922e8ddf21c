#include "lowering/layout/versions.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll::lowering {

using graph::Phase;
using strategy::schedules::Item;
using strategy::schedules::Schedule;
using strategy::schedules::Work;

Versions::Versions(const graph::Graph& graph, const Storages& storages, const std::vector<Item>& items) {
  std::map<std::int32_t, bool> updated;  // version -> an update has followed it
  for (const Item& item : items) {
    if (item.work == Work::update) {
      updated[item.version - 1] = true;
    } else if (updated[item.version]) {
      wanted_later_.insert(item.version);
    }
  }
  if (wanted_later_.empty()) return;
  const auto is_weight = [&](graph::ValueId id) { return storages.all[storages.of(id)].kind == plan::BufferKind::parameter; };
  for (const graph::Node& node : graph.nodes) {
    if (node.phase != Phase::update) continue;
    for (graph::ValueId id : node.outputs) {
      if (is_weight(id)) updated_.insert(storages.of(id).index);
    }
  }
  std::set<std::uint32_t> seen;
  for (const graph::Node& node : graph.nodes) {
    if (!graph::runs_per_micro_batch(node.phase)) continue;
    for (graph::ValueId id : node.inputs) {
      const StorageId storage = storages.of(id);
      if (is_weight(id) && updated_.contains(storage.index) && seen.insert(storage.index).second) weights_[node.block].push_back(storage);
    }
  }
}

bool Versions::ends_before(Phase phase, const Issue& issue) {
  if (graph::runs_per_micro_batch(phase) || phase == Phase::begin || phase == Phase::finish) return false;
  return wanted_later_.erase(issue.batch) > 0;
}

plan::Procedure stash_procedure(const graph::Graph& graph, const Storages& storages, graph::BlockId block,
                                const std::vector<StorageId>& weights) {
  plan::Procedure copies{.name = graph.blocks[block].name + ".stash", .slots = {}, .temporaries = {}, .instructions = {}};
  const auto slot = [&](const std::string& name, const Storage& storage, plan::Access access) {
    copies.slots.push_back({name, storage.type, std::max(storage.bytes, base::Bytes{storage.type.bytes()}), access});
    return plan::Operand{.index = static_cast<std::uint32_t>(copies.slots.size() - 1), .type = storage.type};
  };
  for (const StorageId id : weights) {
    const Storage& storage = storages.all[id];
    const std::string& name = graph.values[storage.value].name;
    const plan::Operand from = slot(name, storage, plan::Access::read);
    const plan::Operand to = slot(name + ".old", storage, plan::Access::write);
    copies.instructions.emplace_back(plan::Copy{{.from = storage.tier, .to = storage.tier}, from, to});
  }
  return copies;
}

bool needs_verdict(const graph::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const graph::Node& node) {
    const auto* verdict = std::get_if<ops::PrepareUpdate>(&node.op);
    return verdict != nullptr && (verdict->clip > 0.0 || verdict->check_finite);
  });
}

namespace {

// The version that each micro-batch computes with on a rank.
std::map<std::int32_t, std::int32_t> versions_on(const Schedule& schedule, std::int32_t rank) {
  std::map<std::int32_t, std::int32_t> versions;
  for (const Item& item : schedule.ranks[static_cast<std::size_t>(rank)]) {
    if (item.work == Work::forward) versions[item.micro_batch] = item.version;
  }
  return versions;
}

}  // namespace

void require_versions(const graph::Graph& graph, const Schedule& schedule, std::int32_t tied_place) {
  if (schedule.shape.batches == 1) return;
  if (needs_verdict(graph)) {
    base::not_legal(
        "schedule \"{}\" updates weights before all ranks have their gradients, but clipping and loss scaling need the norm of all of "
        "them; "
        "use \"optimizer.clip\": 0 and \"precision\": \"bf16\" or \"f32\", or \"schedule\": \"1f1b\"",
        schedule.name);
  }
  if (tied_place > 0 && versions_on(schedule, 0) != versions_on(schedule, tied_place)) {
    base::not_legal(
        "schedule \"{}\" computes with different versions on the first and the last stage, but the token table is one tensor on both; use "
        "\"model.tied\": false, or \"schedule\": \"pipedream-vsync\" or \"2bw\"",
        schedule.name);
  }
}

}  // namespace plimsoll::lowering
