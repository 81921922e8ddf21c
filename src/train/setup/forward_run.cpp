#include "train/setup/forward_run.h"

#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "strategy/forward.h"
#include "strategy/legality.h"
#include "train/setup/nearest_fit.h"

namespace plimsoll::train {

namespace {

using strategy::Strategy;

// What so many ranks may share out, the best first: samples, or, where one text is all there is, the model. What the run gives stays.
std::vector<Strategy> ways_to_share(const config::Run& run, const Programs& programs, std::int64_t ranks) {
  const Strategy given = strategy::without_training(run.strategy);
  if (ranks == given.ranks()) return {given};
  if (given.ranks() > 1) {
    base::not_legal("{}: found {} and a strategy that is open but for {} ranks ({}); give --ranks {}, or all of the \"strategy\"", run.name,
                    ranks == 1 ? "one rank" : fmt::format("{} ranks", ranks), given.ranks(), strategy::mesh_text(given), given.ranks());
  }
  Strategy data = given, shards = given, tensor = given, pipe = given;
  data.data = shards.data = tensor.tensor = pipe.pipe = ranks;
  shards.zero = 3;
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
  const std::vector<Strategy> ways = ways_to_share(run, programs, ranks);
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
    forward.strategy = first_that_fits(forward, programs, ranks > 0 ? ranks : run.strategy.ranks(), capacity_of(run, data_to_come));
    return forward;
  }
  strategy::require_legal_without_training(run.strategy, programs.decode.has_value());  // before anything starts
  forward.strategy = strategy::without_training(run.strategy);
  if (programs.decode) drop_copies(forward, ranks);
  return forward;
}

}  // namespace plimsoll::train
