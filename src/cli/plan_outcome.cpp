#include "cli/plan_outcome.h"

#include <fmt/format.h>

#include "base/error.h"

namespace plimsoll::cli {

using base::Bytes;

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

namespace {

constexpr double kRestartSeconds = 300.0;  // where nobody says more: to notice, replace the node, load and warm up
// Of a node, where nobody says more: Megatron-LM's 384 nodes wrote 273 GB/s, BLOOM's 48 nodes 57 GB/s.
constexpr double kStorageOfNode = 1e9;

// Everything that training cannot make again, of all ranks.
Bytes checkpoint_bytes(const Problem& problem) {
  const planner::Prices whole = problem.prices({});
  const auto bytes_of = [](const planner::BlockPrice& block) { return block.weights + block.optimizer; };
  return Bytes{bytes_of(whole.embedding) + problem.layers * bytes_of(whole.layer) + bytes_of(whole.head)};
}

// A drive inside a node is lost with it, so what counts is storage outside.
void find_storage(const cluster::Cluster& cluster, const PlanOptions& options, Whole& whole) {
  if (!options.storage.empty()) {
    const std::optional<Bytes> given = base::parse_bytes(options.storage);
    if (!given || given->count <= 0) base::bad_input("--storage is '{}', expected bytes a second, as 50GB", options.storage);
    whole.storage = static_cast<double>(given->count);
    whole.saved_to = "as --storage says";
  } else if (cluster.storage > 0.0) {
    whole.storage = cluster.storage;
    whole.saved_to = "the cluster's storage";
  } else {
    whole.storage = kStorageOfNode * static_cast<double>(cluster.nodes);
    whole.saved_to = "assumed: 1 GB/s a node; --storage says otherwise";
  }
}

}  // namespace

std::optional<Whole> whole_run_of(const Outcome& outcome, const PlanOptions& options) {
  if (options.tokens <= 0.0 && options.mtbf <= 0.0) return std::nullopt;
  const cluster::Cluster& cluster = outcome.cluster;
  Whole whole{.run = {}, .checkpoint = checkpoint_bytes(outcome.problem), .storage = 0.0, .saved_to = {}, .prices = {}};
  find_storage(cluster, options, whole);
  whole.prices = {.device_hour = options.price > 0.0 ? options.price : cluster.price,
                  .watts = cluster.device.watts,
                  .kg_per_kwh = options.co2,
                  .device_mtbf = options.mtbf,
                  .save_seconds = static_cast<double>(whole.checkpoint.count) / whole.storage,
                  .restart_seconds = options.restart > 0.0   ? options.restart
                                     : cluster.restart > 0.0 ? cluster.restart
                                                             : kRestartSeconds};
  whole.run = planner::whole_run(options.tokens, tokens_per_step(outcome.problem), outcome.rows[0].estimate.step_seconds,
                                 outcome.problem.ranks, whole.prices);
  return whole;
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
