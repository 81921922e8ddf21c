// Weights of which a program needs more than one version: a schedule without a flush updates them while micro-batches are under way
// that began with older ones and must end with the same.
//
// The newest version is where it always is. Before an update the weights that are still wanted are copied aside; a copy lives until
// the last call that computes with it, so a rank holds exactly the versions that its schedule asks for.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "graph/graph.h"
#include "lowering/layout/issue_order.h"
#include "lowering/layout/storage.h"
#include "plan/plan.h"
#include "strategy/schedules/schedule.h"

namespace plimsoll::lowering {

class Versions {
 public:
  Versions() = default;
  Versions(const graph::Graph& graph, const Storages& storages, const std::vector<strategy::schedules::Item>& items);

  // The call computes with a version of the weight that has been overwritten.
  bool is_old(StorageId id, const Issue& issue) const { return issue.version < issue.newest && updated_.contains(id.index); }

  // The call is the first of an update that overwrites a version which later calls need.
  bool ends_before(graph::Phase phase, const Issue& issue);

  // The weights that updates overwrite and micro-batches read.
  const std::map<graph::BlockId, std::vector<StorageId>>& weights_by_block() const { return weights_; }

 private:
  std::set<std::uint32_t> updated_;
  std::map<graph::BlockId, std::vector<StorageId>> weights_;
  std::set<std::int32_t> wanted_later_;  // versions, after the update that follows them
};

// Puts a block's weights aside: its slots are, for each weight, the one to read and the one to write.
plan::Procedure stash_procedure(const graph::Graph& graph, const Storages& storages, graph::BlockId block,
                                const std::vector<StorageId>& weights);

// Clipping and loss scaling need one verdict over the gradients of all ranks before any may update.
bool needs_verdict(const graph::Graph& graph);

// not_legal when the schedule's versions cannot be had: an update before others have their gradients where there is a verdict to wait
// for, or two versions of a weight that two places share.
void require_versions(const graph::Graph& graph, const strategy::schedules::Schedule& schedule, std::int32_t tied_place);

}  // namespace plimsoll::lowering
