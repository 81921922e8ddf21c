#include "train/foresight/forecast.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "executor/core/backend.h"
#include "plan/programs.h"
#include "plan/waterline.h"
#include "strategy/legality.h"
#include "train/foresight/planning.h"
#include "train/setup/setup.h"
#include "train/setup/this_machine.h"

namespace plimsoll::train {

namespace {

using base::Bytes;
using executor::sim::RankTimes;

// Calls of all classes up to which a whole plan is made: a second or so.
constexpr std::int64_t kCallsOfAPlan = 60'000;
constexpr std::int64_t kClassesOfAPlan = 64;

// Devices that cannot be run on: every operator has a kernel, which takes no workspace.
class DescribedBackend final : public executor::Backend {
 public:
  std::string_view name() const override { return "described"; }
  ops::KernelChoice choose(const ops::KernelQuery& query) const override { return {std::string(ops::name_of(query.op)), 0}; }
  std::optional<std::string> why_not_here() const override { return "the device is only described"; }
  executor::DeviceMemory memory(std::int32_t) const override { return {}; }
  std::unique_ptr<executor::Executor> make_executor(const plan::Plan&, const executor::ExecutorOptions&) const override {
    base::bad_input("a device that is only described cannot run anything; use a cluster of real devices");
  }
};

const executor::Backend& described_backend() {
  static const DescribedBackend backend;
  return backend;
}

void require_devices(const config::Run& run, const cluster::Cluster& cluster) {
  const std::int64_t ranks = run.strategy.ranks();
  if (ranks <= cluster.devices()) return;
  base::not_legal("the strategy has {} ranks ({}), and the cluster \"{}\" has {} x {} = {} devices; use {} nodes, or a smaller strategy",
                  ranks, strategy::describe(run.strategy), cluster.name, cluster.nodes, cluster.devices_per_node, cluster.devices(),
                  (ranks + cluster.devices_per_node - 1) / cluster.devices_per_node);
}

// A run's own limits count where they are tighter.
void keep_limits(const strategy::Limits& limits, cluster::Cluster& cluster) {
  if (cluster.device.cores > 0 && cluster.host.memory.count == 0) cluster.host.memory = cluster.device.memory;  // they are one
  if (limits.host.count > 0) cluster.host.memory = std::min(cluster.host.memory, limits.host);
  if (limits.disk.count > 0) cluster.host.disk = std::min(cluster.host.disk, limits.disk);
  if (limits.device.count == 0 || limits.device >= cluster.device.memory) return;
  cluster.device.memory = limits.device;
  cluster.device.reserve = {};
}

// What hosts and disks hold is for all ranks of a node, and a device is a rank's own. Ranks of a processor share its memory, and both tiers
// are in it; a limit is each rank's own arena there too, as training has it (why_too_large).
std::string reason_against(const plan::Plan& plan, const cluster::Cluster& cluster, const strategy::Limits& limits) {
  const plan::RankClass& fullest = plan::fullest_class(plan);
  const bool shared = cluster.device.cores > 0 && limits.device.count == 0;
  const std::int64_t local = std::min<std::int64_t>(plan.mesh.ranks(), cluster.devices_per_node);
  const auto arena = [&](plan::Tier tier) { return fullest.arena[static_cast<std::size_t>(tier)]; };
  const Bytes host = arena(plan::Tier::host) * local;
  const Bytes disk = arena(plan::Tier::disk) * local;
  const Bytes device = (shared ? arena(plan::Tier::device) * local + host : arena(plan::Tier::device)) + cluster.device.reserve;
  const auto lacks = [&](Bytes needed, Bytes there, std::string_view where) {
    return fmt::format("{} needs {} of {}, and there are {}: {} too much", fullest.name, base::to_string(needed), where,
                       base::to_string(there), base::to_string(needed - there));
  };
  if (device > cluster.device.memory) return lacks(device, cluster.device.memory, shared ? "the machine's memory" : "the device's memory");
  if (host > cluster.host.memory) return lacks(host, cluster.host.memory, "the host's memory");
  if (disk > cluster.host.disk) return lacks(disk, cluster.host.disk, "the disk");
  return "";
}

}  // namespace

bool is_outlined(const config::Run& run) {
  const strategy::Strategy& strategy = run.strategy;
  const std::int64_t calls = 3 * (run.model.layers + 2) * run.micro_batches() * strategy.tensor;
  return !strategy.own_degrees() && (calls > kCallsOfAPlan || strategy.pipe * strategy.tensor > kClassesOfAPlan);
}

std::vector<executor::Surrounding> simulated_around(const plan::Plan& plan, const cluster::Cluster& cluster,
                                                    executor::sim::LinkBytes& bytes) {
  std::vector<executor::Surrounding> around;
  const plan::Around served = plan::around(plan, kTrain);
  for (const bool before : {true, false}) {
    for (const std::string& program : before ? served.ahead : served.behind) {
      const executor::sim::Result moved = executor::sim::simulate(plan, cluster, {.program = program});
      around.push_back({.program = program, .before = before, .seconds = moved.seconds});
      for (std::size_t link = 0; link < moved.bytes.size(); ++link) bytes[link] += moved.bytes[link];
    }
  }
  return around;
}

SessionOptions described_session(const config::Run& run, const cluster::Cluster& cluster, const ForecastOptions& options) {
  config::Run here = run;
  here.device = config::Device::cpu;  // what can be planned does not depend on what this machine has
  here.limits.device = {};            // nor on how much memory it has
  SessionOptions session = session_options(here, {.train = true, .schedule = options.schedule});
  session.name = describe(run);
  session.link = bytes_per_operation(cluster, run);
  const std::int64_t per_node = std::min(run.strategy.ranks(), cluster.devices_per_node);
  if (cluster.device.cores > 0) {
    if (session.threads == 0) session.threads = static_cast<int>(std::max<std::int64_t>(1, cluster.device.cores / per_node));
  } else {
    session.backend = &described_backend();
    session.threads = 1;
  }
  const std::int64_t nodes = (run.strategy.ranks() + cluster.devices_per_node - 1) / cluster.devices_per_node;
  session.host_limit = cluster.host.memory * nodes;
  if (run.strategy.recompute == strategy::Recompute::optimal) {
    const Bytes room = cluster.device.memory - cluster.device.reserve;
    // Ranks of a processor share its memory; a limit is each rank's own.
    const bool shared = cluster.device.cores > 0 && run.limits.device.count == 0;
    session.device_limit = shared ? Bytes{room.count / per_node} : room;
  }
  return session;
}

Forecast forecast(const config::Run& run, const cluster::Cluster& given, const ForecastOptions& options) {
  if (run.strategy_auto) {
    base::bad_input("{}: \"strategy\" is \"auto\", expected one that is decided; see `plimsoll plan --cluster {}`", run.name, given.name);
  }
  if (run.precision_auto)
    base::bad_input("{}: \"precision\" is \"auto\", expected one that is decided; see `plimsoll plan --cluster {}`", run.name, given.name);
  cluster::Cluster cluster = cluster::placed(given, run.strategy.ranks());
  keep_limits(run.limits, cluster);
  require_devices(run, cluster);
  require_precision(run, cluster);
  const SessionOptions session = described_session(run, cluster, options);
  Forecast forecast;
  forecast.outlined = options.outline.value_or(is_outlined(run));
  forecast.plan = forecast.outlined ? outline_session(session) : plan_session(session);
  forecast.result = executor::sim::simulate(forecast.plan, cluster,
                                            {.jitter = options.jitter,
                                             .seed = options.seed,
                                             .stragglers = options.stragglers,
                                             .spans = options.spans,
                                             .tensor_folded = forecast.outlined});
  const auto tokens = static_cast<double>(run.batch.global) * static_cast<double>(run.batch.sequence);
  const std::int64_t updates = forecast.plan.classes.front().programs.front().micro_batches / run.micro_batches();
  forecast.step_seconds = forecast.result.seconds / static_cast<double>(updates);
  forecast.around = simulated_around(forecast.plan, cluster, forecast.result.bytes);
  for (const executor::Surrounding& around : forecast.around) forecast.step_seconds += around.seconds;
  forecast.tokens_per_second = tokens / forecast.step_seconds;
  forecast.reason = reason_against(forecast.plan, cluster, run.limits);
  return forecast;
}

std::vector<std::pair<double, Bytes>> waterline_over_time(const Forecast& forecast, std::size_t times, plan::Tier tier,
                                                          std::size_t points) {
  const RankTimes& ranks = forecast.result.times[times];
  const plan::RankClass& rank_class = forecast.plan.classes[ranks.rank_class];
  const plan::Waterline line = plan::waterline(rank_class, 0, tier);
  std::vector<std::size_t> next(rank_class.programs[0].streams.size());
  std::vector<std::pair<double, Bytes>> levels;
  for (const executor::sim::Span& span : ranks.spans) {
    const plan::Call& call = rank_class.programs[0].streams[span.lane].calls[next[span.lane]++];
    levels.emplace_back(span.begin, line.at_call[static_cast<std::size_t>(call.moment)]);
  }
  std::sort(levels.begin(), levels.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (levels.size() <= points) return levels;
  std::vector<std::pair<double, Bytes>> highest;
  for (std::size_t point = 0; point < points; ++point) {
    const auto begin = levels.begin() + static_cast<std::ptrdiff_t>(point * levels.size() / points);
    const auto end = levels.begin() + static_cast<std::ptrdiff_t>((point + 1) * levels.size() / points);
    highest.push_back(*std::max_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  return highest;
}

}  // namespace plimsoll::train
