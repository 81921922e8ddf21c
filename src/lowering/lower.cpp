// The classes of ranks, each lowered by itself, and the procedures that they share.
#include "lowering/lower.h"

#include <algorithm>
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

std::vector<ClassPlace> class_places(const plan::Mesh& mesh) {
  std::vector<ClassPlace> places;
  for (std::int32_t pipe = 0; pipe < mesh.pipe; ++pipe) {
    const plan::Degrees degrees = mesh.degrees(pipe);
    for (std::int32_t data = 0; data < (mesh.even() ? 1 : degrees.data); ++data) {
      for (std::int32_t tensor = 0; tensor < degrees.tensor; ++tensor) places.push_back({pipe, data, tensor});
    }
  }
  return places;
}

// Classes at one place of the pipe axis, but for their places on the tensor axis.
void lower_tensor_ranks(const LoweringInputs& inputs, const RankGraphs& graphs, const std::vector<ClassPlace>& places,
                        std::vector<LoweredClass>& lowered, std::size_t first, std::size_t end) {
  std::vector<std::unique_ptr<ClassLowering>> made;
  for (std::size_t index = first; index < end; ++index) {
    std::optional<LoweredClass> same;
    for (const std::unique_ptr<ClassLowering>& other : made) {
      same = other->at(places[index].tensor);
      if (same) break;
    }
    if (same) {
      lowered[index] = std::move(*same);
    } else {
      made.push_back(std::make_unique<ClassLowering>(inputs, graphs, places[index]));
      lowered[index] = made.back()->lowered();
    }
  }
}

// Places of the pipe axis know nothing of each other, so each is lowered by itself; a pipeline of hundreds takes seconds.
std::vector<LoweredClass> lower_classes(const LoweringInputs& inputs, const RankGraphs& graphs) {
  const std::vector<ClassPlace> places = class_places(graphs.mesh());
  std::vector<std::size_t> begins;  // of the classes that differ on the tensor axis alone
  for (std::size_t index = 0; index < places.size(); ++index) {
    if (places[index].tensor == 0) begins.push_back(index);
  }
  begins.push_back(places.size());
  std::vector<LoweredClass> lowered(places.size());
  const auto threads = std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), begins.size() - 1);
  base::in_parallel(static_cast<std::int64_t>(threads), [&](std::int64_t thread) {
    for (auto index = static_cast<std::size_t>(thread); index + 1 < begins.size(); index += threads)
      lower_tensor_ranks(inputs, graphs, places, lowered, begins[index], begins[index + 1]);
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
