// One class of ranks: its programs' calls, bound to buffers, and the buffers placed. Ranks of the tensor axis mostly make the same calls on
// the same buffers, with other slices of the weights: then one of them is lowered, and the others share its streams and buffers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/id.h"
#include "lowering/lower.h"
#include "lowering/rank_graph.h"
#include "ops/placement.h"
#include "plan/plan.h"

namespace plimsoll::lowering {

// Procedures that do the same are one.
class Procedures {
 public:
  plan::ProcedureId add(plan::Procedure procedure);

  const plan::Procedure& operator[](plan::ProcedureId id) const { return all_[id]; }
  const base::IdVector<plan::ProcedureId, plan::Procedure>& all() const { return all_; }
  base::IdVector<plan::ProcedureId, plan::Procedure> take() { return std::move(all_); }

 private:
  base::IdVector<plan::ProcedureId, plan::Procedure> all_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<plan::ProcedureId>> alike_;
};

// Ranks at one place of all axes whose ranks differ (ops::AxisRow::differs) have the same parts of everything; on the others they differ
// only in which shard is their own - and, where places of the pipe axis have degrees of their own, in which micro-batches they take: then
// every rank is a class. A class is known by its first rank.

// A class, and the procedures that the entries of its programs stand for.
struct LoweredClass {
  plan::RankClass rank_class;
  base::IdVector<plan::ProcedureId, plan::Procedure> procedures;
};

struct ProgramWork;

class ClassLowering {
 public:
  // `inputs` and `graphs` must outlive it.
  ClassLowering(const LoweringInputs& inputs, const RankGraphs& graphs, std::int32_t first_rank);
  ~ClassLowering();

  const LoweredClass& lowered() const { return lowered_; }

  // The class of another rank, which has other parts of the same tensors, where its calls are the same; nullopt where they are not.
  std::optional<LoweredClass> at(std::int32_t first_rank) const;

 private:
  const LoweringInputs& inputs_;
  const RankGraphs& graphs_;
  LoweredClass lowered_;
  std::vector<std::unique_ptr<const ProgramWork>> works_;
};

}  // namespace plimsoll::lowering
