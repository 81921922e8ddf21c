// From runs of graph nodes to procedures: slots for what lives longer than the call, temporaries at fixed frame offsets
// for what does not, a kernel and its workspace for every instruction.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/live_rows.h"
#include "lowering/layout/storage.h"
#include "ops/kernel_choice.h"
#include "plan/plan.h"

namespace plimsoll::lowering {

// Consecutive nodes of one block and phase: what one call does.
struct Piece {
  graph::BlockId block;
  graph::Phase phase = graph::Phase::forward;
  graph::Turn turn = graph::Turn::each;
  plan::StreamKind stream = plan::StreamKind::compute;
  plan::Tier tier = plan::Tier::device;  // of what it computes with, and of its frame
  std::vector<graph::NodeId> nodes;
  std::string name;  // "blocks.3.forward"

  bool operator==(const Piece&) const = default;
};

// `host_beside`: the host is another processor than the device, and what it computes is on a stream of its own.
std::vector<Piece> pieces_of(const graph::Graph& graph, const plan::Mesh& mesh, bool host_beside);

// A procedure for a piece, and the storage that each of its slots stands for.
struct BoundProcedure {
  plan::Procedure procedure;
  std::vector<StorageId> slots;
};

// What the procedures of a graph's pieces are made from; all of it outlives this.
struct ProcedureInputs {
  ProcedureInputs(const graph::Graph& graph, const Storages& storages, const std::vector<Piece>& pieces, const ops::ChooseKernel& choose,
                  int threads);

  const graph::Graph& graph;
  const Storages& storages;
  const std::vector<Piece>& pieces;
  const ops::ChooseKernel& choose;
  int threads;
  graph::LiveRows live;
  std::vector<std::size_t> only_in;  // by storage: the piece that alone touches it; none where it lives longer than a call
};

// `accumulate`: parameter gradients are added to what earlier micro-batches left, instead of written.
BoundProcedure make_procedure(const ProcedureInputs& inputs, std::size_t piece, bool accumulate);

}  // namespace plimsoll::lowering
