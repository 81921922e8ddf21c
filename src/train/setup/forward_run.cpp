#include "train/setup/forward_run.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "strategy/forward.h"
#include "strategy/legality.h"
#include "train/setup/nearest_fit.h"

namespace plimsoll::train {

namespace {

using strategy::Strategy;

// What so many ranks may share out, the best first: samples, or, where one text is all there is, the model.
std::vector<Strategy> ways_to_share(const Programs& programs, std::int64_t ranks) {
  Strategy data, shards, tensor, pipe;
  data.data = shards.data = tensor.tensor = pipe.pipe = ranks;
  shards.zero = 3;
  if (ranks == 1) return {Strategy{}};
  return programs.decode ? std::vector{tensor, pipe, shards} : std::vector{data, shards};
}

// False too where the model cannot be run so.
bool fits(const SessionOptions& options, const Capacity& capacity) {
  try {
    return !why_too_large(plan_session(options), capacity);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return false;
  }
}

Strategy first_that_fits(const config::Run& run, const Programs& programs, std::int64_t ranks, const Capacity& capacity) {
  const std::vector<Strategy> ways = ways_to_share(programs, ranks);
  const auto options_with = [&](const Strategy& way) {
    config::Run with = run;
    with.strategy = way;
    return session_options(with, programs);
  };
  for (const Strategy& way : ways) {
    if (fits(options_with(way), capacity)) return way;
  }
  for (const Strategy& way : ways) {
    if (const std::optional<Strategy> nearest = nearest_strategy(options_with(way), capacity)) return *nearest;
  }
  return ways.front();
}

// One text has no samples: ranks that share out nothing else would all do the same.
void drop_copies(config::Run& run, std::int64_t ranks) {
  Strategy& strategy = run.strategy;
  if (strategy.zero == 3 || strategy.own_degrees()) return;
  const std::int64_t copies = strategy.data;
  strategy.data = 1;
  if (ranks == 0 || ranks == strategy.ranks()) return;
  base::not_legal(
      "{}: of {} ranks {} would do the same as others: one text has no samples for \"data\" ranks to share out; start {}, or give "
      "\"strategy.tensor\" or \"strategy.pipe\", or \"strategy.zero\": 3, where each has a part of the weights",
      run.where("strategy.data"), ranks, ranks - ranks / copies, strategy.ranks());
}

}  // namespace

config::Run without_training(const config::Run& run, const Programs& programs, std::int64_t ranks, base::Bytes data_to_come) {
  config::Run forward = run;
  if (run.strategy_auto) {
    forward.strategy_auto = false;
    forward.strategy = first_that_fits(forward, programs, std::max<std::int64_t>(1, ranks), capacity_of(run, data_to_come));
    return forward;
  }
  strategy::require_legal_without_training(run.strategy, programs.decode.has_value());  // before anything starts
  forward.strategy = strategy::without_training(run.strategy);
  if (programs.decode) drop_copies(forward, ranks);
  return forward;
}

}  // namespace plimsoll::train
