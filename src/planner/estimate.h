// What a step would take and hold under one choice: the pipeline schedule is made and run on ideal ranks (strategy/schedules) with the
// prices of its stages; reductions, gathers and updates come behind it as lowering puts them.
//
// `bounds` is the closed form of the same: never more than `evaluate` finds, in time or in memory, and thousands of times
// cheaper. The search looks at choices in the order of their bounds and stops where no bound can win any more.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/price_table.h"
#include "planner/problem.h"
#include "planner/residency.h"
#include "planner/sheet.h"

namespace plimsoll::planner {

struct Bounds {
  double step_seconds = 0.0;
  Bytes device;
};

// When each rank of the pipe axis is done with its passes, and what it holds meanwhile.
struct Passes {
  std::vector<double> ends;
  std::vector<std::vector<Moment>> moments;  // the fullest of them, with each share of gradients that have begun
  double makespan = 0.0;
};

class Estimator {
 public:
  explicit Estimator(const Problem& problem) : problem_(problem), prices_(problem.prices) {}

  // A reason where the shape of the choice is impossible (divisions, layers, schedule); empty otherwise. Says nothing of
  // memory.
  std::string reason_against(const Choice& choice);

  // For choices without a reason against them. Of a shape: for the best that the data axis could do with it.
  Bounds bounds(const Choice& choice);
  Bounds shape_bounds(const Choice& shape);
  Estimate evaluate(const Choice& choice);

  const Problem& problem() const { return problem_; }
  // Pieces of schedules that were run so far: what `evaluate` costs.
  std::int64_t pieces() const { return pieces_; }

 private:
  // What the data axis does with states and gradients does not change the passes, unless these wait for it: they are run once for each
  // shape.
  const Passes& passes_of(const Sheet& sheet, const Choice& choice);
  // Where the strategy fits what it keeps to the memory: how, in what the rest leaves.
  void fit(const Sheet& sheet, const Choice& choice, Estimate& estimate);

  using ShapeKey = std::tuple<PriceKey, std::string, std::int64_t, std::int64_t, strategy::Recompute, strategy::StagePartition>;
  const Problem& problem_;
  PriceTable prices_;
  std::map<ShapeKey, Passes> known_;
  std::map<std::pair<PriceKey, bool>, Residency> residencies_;
  Passes apart_;  // of a choice whose passes are its own
  std::int64_t pieces_ = 0;
};

}  // namespace plimsoll::planner
