// Which values share memory. Operators that work in place force it (updates, accumulation); others allow it where the
// overwritten value has no later reader. What shares is one storage.
#pragma once

#include <vector>

#include "base/id.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace plimsoll::lowering {

using StorageId = base::Id<struct StorageTag>;

struct Storage {
  graph::ValueId value;  // that gives it its name
  base::TensorType type;
  plan::BufferKind kind = plan::BufferKind::activation;
  plan::Tier tier = plan::Tier::device;
  base::Bytes bytes{};             // of the largest view of it
  bool gradient = false;           // of a parameter
  bool all_micro_batches = false;  // one for all micro-batches of a step
  bool result = false;             // read by somebody outside after the program

  bool operator==(const Storage&) const = default;
};

struct Storages {
  base::IdVector<StorageId, Storage> all;
  std::vector<StorageId> of_value;  // by value index
  // By value index: it starts (place on data_inner) x shard + offset into its storage.
  struct Start {
    base::Bytes shard{};
    base::Bytes offset{};
  };
  std::vector<Start> starts;

  StorageId of(graph::ValueId value) const { return of_value[value.index]; }
};

Storages share_storage(const graph::Graph& graph);

}  // namespace plimsoll::lowering
