// The classes of ranks, each lowered by itself, and the procedures that they share.
#include "lowering/lower.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "lowering/fit.h"
#include "lowering/lower_class.h"
#include "lowering/passes/recompute.h"
#include "lowering/rank_graph.h"
#include "lowering/rows.h"
#include "strategy/legality.h"

namespace plimsoll::lowering {

namespace {

// The first rank of each class.
std::vector<std::int32_t> first_ranks(const plan::Mesh& mesh) {
  std::vector<std::int32_t> first;
  std::vector<bool> seen(static_cast<std::size_t>(mesh.ranks()), false);
  for (std::int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    for (const std::int32_t alike : mesh.alike(rank)) seen[static_cast<std::size_t>(alike)] = true;
    first.push_back(rank);
  }
  return first;
}

// Classes that differ only in which parts of tensors they have; by their place among all, ascending.
std::vector<std::vector<std::size_t>> beside_each_other(const plan::Mesh& mesh, const std::vector<std::int32_t>& first) {
  std::map<std::int32_t, std::vector<std::size_t>> by_rank;
  for (std::size_t index = 0; index < first.size(); ++index)
    by_rank[mesh.sharing(ops::Shares::tensors, first[index]).front()].push_back(index);
  std::vector<std::vector<std::size_t>> beside;
  for (auto& [rank, classes] : by_rank) beside.push_back(std::move(classes));
  return beside;
}

void lower_tensor_ranks(const LoweringInputs& inputs, const RankGraphs& graphs, const std::vector<std::int32_t>& first,
                        const std::vector<std::size_t>& classes, std::vector<LoweredClass>& lowered) {
  std::vector<std::unique_ptr<ClassLowering>> made;
  for (const std::size_t index : classes) {
    std::optional<LoweredClass> same;
    for (const std::unique_ptr<ClassLowering>& other : made) {
      same = other->at(first[index]);
      if (same) break;
    }
    if (same) {
      lowered[index] = std::move(*same);
    } else {
      made.push_back(std::make_unique<ClassLowering>(inputs, graphs, first[index]));
      lowered[index] = made.back()->lowered();
    }
  }
}

// Places of the pipe axis know nothing of each other, so each is lowered by itself; a pipeline of hundreds takes seconds.
std::vector<LoweredClass> lower_classes(const LoweringInputs& inputs, const RankGraphs& graphs) {
  const std::vector<std::int32_t> first = first_ranks(graphs.mesh());
  const std::vector<std::vector<std::size_t>> beside = beside_each_other(graphs.mesh(), first);
  std::vector<LoweredClass> lowered(first.size());
  const auto threads = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), beside.size());
  base::in_parallel(static_cast<std::int64_t>(threads), [&](std::int64_t thread) {
    for (auto index = static_cast<std::size_t>(thread); index < beside.size(); index += threads)
      lower_tensor_ranks(inputs, graphs, first, beside[index], lowered);
  });
  return lowered;
}

plan::Plan lower_as(const LoweringInputs& inputs, const RecomputeOrder& again) {
  const RankGraphs graphs(inputs, again);
  plan::Plan plan;
  plan.model = inputs.model;
  plan.strategy = strategy::describe(inputs.strategy);
  plan.notes = again.notes;
  plan.threads = inputs.threads;
  plan.mesh = graphs.mesh();
  Procedures procedures;
  for (LoweredClass& lowered : lower_classes(inputs, graphs)) {
    std::vector<plan::ProcedureId> shared;
    for (plan::Procedure& own : lowered.procedures) shared.push_back(procedures.add(std::move(own)));
    for (plan::Program& program : lowered.rank_class.programs) program.procedures = shared;
    plan.classes.push_back(std::move(lowered.rank_class));
  }
  plan.procedures = procedures.take();
  const std::string note = update_note(inputs.programs.front().graph, graphs.update(), plan::fullest_class(plan));
  if (!note.empty()) plan.notes.push_back(note);
  if (inputs.rows != nullptr) plan.notes.push_back(note_of(*inputs.rows));
  return plan;
}

}  // namespace

plan::Plan lower(const LoweringInputs& inputs) {
  return with_rows_apart(inputs, [](const LoweringInputs& apart) {
    return fit_update(apart, 1, [](const LoweringInputs& fitted) { return fit_recompute(fitted, lower_as); });
  });
}

}  // namespace plimsoll::lowering
