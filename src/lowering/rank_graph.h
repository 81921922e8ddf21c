// What every place of the mesh computes, and in which order: the passes over a program's graph, and the schedule.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lowering/layout/issue_order.h"
#include "lowering/layout/procedures.h"
#include "lowering/layout/streams.h"
#include "lowering/lower.h"
#include "lowering/pass_table.h"
#include "lowering/passes/recompute.h"
#include "lowering/passes/split_pipe.h"
#include "lowering/tiers.h"
#include "ops/placement.h"
#include "plan/plan.h"
#include "strategy/schedules/schedule.h"

namespace plimsoll::lowering {

class RankGraphs {
 public:
  // `inputs` and `again` must outlive it.
  RankGraphs(const LoweringInputs& inputs, const RecomputeOrder& again);

  const plan::Mesh& mesh() const { return mesh_; }
  const Pipe& pipe() const { return pipe_; }

  // What the passes over a program's graph know on a rank. `seat`: as if it sat there on the tensor axis.
  PassInputs inputs_at(const ProgramSource& source, std::int32_t rank, const std::optional<ops::Seat>& seat = {}) const;

  // The program's graph on a rank, and on all that run the same (plan::Mesh::alike).
  graph::Graph graph_at(const ProgramSource& source, std::int32_t rank, const std::optional<ops::Seat>& seat = {}) const;

  // When the host updates in the train program.
  HostUpdate update() const { return update_; }

  // What a rank does, item by item.
  std::vector<strategy::schedules::Item> items_at(const ProgramSource& source, std::int32_t rank) const;

  // Batches that the program runs one after another, each with an update of its own.
  std::int32_t batches(const ProgramSource& source) const;

  std::vector<std::int32_t> stages_at(std::int32_t pipe_place) const;

 private:
  // After the passes that all ranks of the place have in common.
  std::shared_ptr<const graph::Graph> graph_of_place(const ProgramSource& source, const PassInputs& inputs,
                                                     const graph::PassDone& done) const;
  bool follows_schedule(const ProgramSource& source) const;
  void lay_mesh();
  void lay_pipe();
  void require_turns() const;
  void require_same_ends() const;
  std::vector<strategy::schedules::Item> own_items(const std::vector<strategy::schedules::Item>& all, std::int32_t rank,
                                                   std::int32_t together) const;

  const LoweringInputs& inputs_;
  const RecomputeOrder& again_;
  plan::Mesh mesh_;
  Pipe pipe_;
  strategy::schedules::Schedule schedule_;  // of the train program, where the pipe axis has several places
  std::int32_t together_ = 1;               // micro-batches that an item of the schedule stands for
  bool splits_backward_ = false;            // the schedule has items for the gradients of weights
  HostUpdate update_ = HostUpdate::none;
  mutable std::mutex places_mutex_;
  mutable std::map<std::pair<const graph::Graph*, std::int32_t>, std::shared_ptr<const graph::Graph>> places_;
};

// Says when what another stream was given is known to be done with, so that its memory is free again.
class Settling {
 public:
  explicit Settling(Streams& streams) : streams_(streams), leaving_(streams) {}

  // Before a piece's call is added.
  void before(const Piece& piece, const Issue& issue);

  // Whether a call without instructions must come before the piece's, on the compute stream: then it waits for what it must.
  bool pauses(const Piece& piece);

 private:
  Streams& streams_;
  std::map<std::int32_t, std::int32_t> sent_;  // item -> the moment of its last message
  LeavingCopies leaving_;
  std::int32_t item_ = 0;
};

bool is_persistent(plan::BufferKind kind);

}  // namespace plimsoll::lowering
