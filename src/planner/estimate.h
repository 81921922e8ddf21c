// What a step would take and hold under one choice: the pipeline schedule is made and run on ideal ranks (strategy/schedules) with the
// prices of its stages; reductions, gathers and updates come behind it as lowering puts them.
//
// `bounds` is the closed form of the same: never more than `evaluate` finds, in time or in memory, and thousands of times
// cheaper. The search looks at choices in the order of their bounds and stops where no bound can win any more.
#pragma once

#include "planner/price_table.h"
#include "planner/problem.h"

namespace plimsoll::planner {

struct Bounds {
  double step_seconds = 0.0;
  Bytes device;
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
  const Problem& problem_;
  PriceTable prices_;
  std::int64_t pieces_ = 0;
};

}  // namespace plimsoll::planner
