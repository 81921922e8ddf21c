// What a run would take on a cluster, without running it: the plan that training would run, on the simulator's virtual clock.
//
// Where a whole plan would be large, an outline of it is simulated instead (lowering/outline.h); the two agree where both can be made.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/cluster.h"
#include "config/run.h"
#include "executor/core/timeline.h"
#include "executor/sim/simulate.h"
#include "plan/plan.h"
#include "strategy/schedules/schedule.h"
#include "train/session/session.h"

namespace plimsoll::train {

struct ForecastOptions {
  std::optional<strategy::schedules::Schedule> schedule = {};  // of a pipeline, where that is a file
  double jitter = 0.0;
  std::uint64_t seed = 1;
  std::vector<executor::sim::Straggler> stragglers = {};
  bool spans = false;                // keep when every call ran
  std::optional<bool> outline = {};  // whether to simulate an outline; else what is quick enough
};

struct Forecast {
  plan::Plan plan;
  bool outlined = false;
  executor::sim::Result result;
  std::vector<executor::Surrounding> around = {};  // what moves rows of a table on disk stands before and behind the step
  double step_seconds = 0.0;                       // of one update: a program of a schedule without a flush makes several
  double tokens_per_second = 0.0;
  std::string reason;  // why it does not fit; empty: it does

  bool fits() const { return reason.empty(); }
};

// not_legal when the cluster has fewer devices than the strategy has ranks, or a strategy cannot be run.
Forecast forecast(const config::Run& run, const cluster::Cluster& cluster, const ForecastOptions& options = {});

// Whether an outline of the run is simulated: where its whole plan would take long to make.
bool is_outlined(const config::Run& run);

// What stands around the plan's step, and the bytes that it moves.
std::vector<executor::Surrounding> simulated_around(const plan::Plan& plan, const cluster::Cluster& cluster,
                                                    executor::sim::LinkBytes& bytes);

// The session that `forecast` simulates: the run's, on devices that are only described.
SessionOptions described_session(const config::Run& run, const cluster::Cluster& cluster, const ForecastOptions& options);

// Bytes in use on a tier over the step, as (seconds, bytes) where they change, at most `points` of them: the highest of each stretch.
// Of a whole plan simulated with spans.
std::vector<std::pair<double, base::Bytes>> waterline_over_time(const Forecast& forecast, std::size_t times, plan::Tier tier,
                                                                std::size_t points);

}  // namespace plimsoll::train
