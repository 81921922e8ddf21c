#include "cli/plan_outcome.h"

#include <fmt/format.h>

namespace plimsoll::cli {

namespace {

constexpr double kTera = 1e12;

}  // namespace

double tokens_per_step(const Problem& problem) { return static_cast<double>(problem.global_batch * problem.sequence); }

double model_tflops(const Problem& problem, double seconds) {
  return problem.model_flops * static_cast<double>(problem.global_batch) / seconds / static_cast<double>(problem.ranks) / kTera;
}

std::string seconds_text(double seconds) {
  if (seconds >= 7200.0) return fmt::format("{:.4g} h", seconds / 3600.0);
  if (seconds >= 600.0) return fmt::format("{:.4g} min", seconds / 60.0);
  if (seconds >= 1.0) return fmt::format("{:.4g} s", seconds);
  return seconds >= 1e-3 ? fmt::format("{:.4g} ms", seconds * 1e3) : fmt::format("{:.4g} us", seconds * 1e6);
}

std::string count_text(double count) {
  if (count >= 1e12) return fmt::format("{:.4g} T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.4g} G", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.4g} M", count / 1e6);
  return count >= 1e3 ? fmt::format("{:.4g} k", count / 1e3) : fmt::format("{:.3g}", count);
}

std::optional<planner::WholeRun> whole_run_of(const Outcome& outcome, const PlanOptions& options) {
  if (options.tokens <= 0.0) return std::nullopt;
  const Candidate& best = outcome.rows[0];
  planner::RunPrices prices{.device_hour = options.price > 0.0 ? options.price : outcome.cluster.price,
                            .watts = outcome.cluster.device.watts,
                            .kg_per_kwh = options.co2,
                            .device_mtbf = options.mtbf};
  // A checkpoint holds what training cannot make again; every node writes its part.
  const planner::Prices whole = outcome.problem.prices({});
  const auto bytes_of = [](const planner::BlockPrice& block) { return static_cast<double>(block.weights + block.optimizer); };
  const double bytes =
      bytes_of(whole.embedding) + static_cast<double>(outcome.problem.layers) * bytes_of(whole.layer) + bytes_of(whole.head);
  const cluster::Link* disk = outcome.cluster.find(cluster::Reach::disk);
  const double rate = (disk == nullptr ? 1e9 : disk->bandwidth) * static_cast<double>(outcome.cluster.nodes);
  prices.save_seconds = bytes / rate;
  return planner::whole_run(options.tokens, tokens_per_step(outcome.problem), best.estimate.step_seconds, outcome.problem.ranks, prices);
}

std::vector<report::ClassTimes> class_times(const plan::Plan& plan, const executor::sim::Result& result) {
  std::vector<report::ClassTimes> all(plan.classes.size());
  for (const executor::sim::RankTimes& times : result.times) {
    report::ClassTimes& lanes = all[times.rank_class];
    if (!lanes.empty()) continue;  // the first data places stand for the class
    lanes.resize(times.lanes.size());
    for (const executor::sim::Span& span : times.spans) lanes[span.lane].push_back({span.begin, span.end});
  }
  return all;
}

}  // namespace plimsoll::cli
