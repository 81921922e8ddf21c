#include "train/setup/this_machine.h"

#include <algorithm>

#include "base/cores.h"
#include "base/error.h"
#include "cluster/file.h"
#include "cluster/presets.h"
#include "executor/cpu/cpu_backend.h"
#include "io/files.h"
#include "train/machine/calibrate.h"
#include "train/setup/setup.h"

namespace plimsoll::train {

namespace {

constexpr double kGB = 1e9;

// A core with 256-bit vectors at an ordinary clock, and its share of the memory's bandwidth.
constexpr double kRateOfCore = 60e9;
constexpr double kBandwidthOfCore = 8 * kGB;

// Of a process beside its arenas. What it uses at the moment would differ from rank to rank, and all must decide alike.
constexpr base::Bytes kReserve{128ll << 20};
// Of what is free on a drive, which changes while ranks look.
constexpr std::int64_t kRoundingOfADisk = std::int64_t{64} << 20;

// The drive that the run's disk tier is on, whatever drive was measured. A run without one is foreseen with that of the current folder.
base::Bytes free_on_disk(io::FileSystem& file_system, const config::Run& run) {
  const io::Path folder = run.limits.disk_path.empty() ? io::Path(".") : io::Path(run.limits.disk_path);
  const base::Bytes free = file_system.free_space(folder);
  return base::Bytes{free.count / kRoundingOfADisk * kRoundingOfADisk};
}

}  // namespace

cluster::Cluster machine_at_a_guess(io::FileSystem& file_system, const config::Run& run, std::int64_t ranks) {
  const executor::Backend& backend = backend_of(run);
  if (backend.name() != executor::cpu_backend().name()) {
    const Capacity capacity = capacity_of(run);
    // GPUs of one machine: rates of a recent one; memory as it is.
    cluster::Cluster cluster = cluster::preset("dgx-h100");
    cluster.name = "this";
    cluster.origin = "guessed: this machine was not measured";
    cluster.devices_per_node = std::max(cluster.devices_per_node, ranks);
    cluster.device.memory = base::Bytes{capacity.device.count >> 30 << 30};
    cluster.device.reserve = base::Bytes{0};
    cluster.host.disk = free_on_disk(file_system, run);
    return cluster;
  }
  const std::int64_t cores = base::usable_cores();
  const auto all = static_cast<double>(cores);
  cluster::Cluster cluster;
  cluster.name = "this";
  cluster.origin = "guessed: this machine was not measured";
  cluster.devices_per_node = std::max<std::int64_t>(1, ranks);
  cluster.device.name = "processor";
  cluster.device.memory = backend.memory(0).total;  // what the run may use of it are limits of its own
  cluster.device.reserve = kReserve;
  cluster.device.cores = cores;
  cluster.device.units = 1;
  cluster.device.rates = {
      {base::DType::f32, all * kRateOfCore}, {base::DType::bf16, all * kRateOfCore}, {base::DType::f16, all * kRateOfCore}};
  cluster.device.vector_rate = all * kRateOfCore / 4.0;
  cluster.device.bandwidth = all * kBandwidthOfCore;
  cluster.device.launch = 2e-6;
  cluster.host = {.memory = cluster.device.memory, .bandwidth = all * kBandwidthOfCore, .disk = free_on_disk(file_system, run)};
  cluster.links = {{.name = "memory", .reach = cluster::Reach::inside, .bandwidth = 4 * kGB, .latency = 20e-6},
                   {.name = "host", .reach = cluster::Reach::host, .bandwidth = 4 * kGB, .latency = 5e-6},
                   {.name = "disk", .reach = cluster::Reach::disk, .bandwidth = 1 * kGB, .latency = 1e-4, .both_ways = false}};
  return cluster;
}

// A limit of a processor's memory holds for arenas and what lies beside them. Rounded up: a search takes a little of it too, and processes
// that measure it each must decide alike.
config::Run without_reserve(const config::Run& run, base::Bytes data_to_come, bool apart) {
  config::Run within = run;
  if (run.limits.device.count == 0) return within;
  constexpr base::Bytes kSearch{3ll << 20};
  const base::Bytes rounding{apart ? 16ll << 20 : 1ll << 20};
  const base::Bytes reserve = base::round_up(capacity_of(run, data_to_come).reserve + kSearch, rounding);
  if (run.limits.device <= reserve) {
    base::not_legal("{}: \"limits.device\" is {}, and the program alone takes {} beside what it trains; use a larger limit",
                    run.where("limits.device"), base::to_string(run.limits.device), base::to_string(reserve));
  }
  within.limits.device = run.limits.device - reserve;
  return within;
}

cluster::Cluster open_cluster(io::FileSystem& file_system, const std::string& name, const config::Run& run, std::int64_t ranks) {
  if (name.ends_with(".json")) return cluster::parse_cluster(io::read_text(file_system, name, cluster::kLargestFile), name);
  if (name == "this") {
    if (ranks == 0) ranks = run.strategy_auto ? 1 : run.strategy.ranks();
    std::optional<cluster::Cluster> measured = calibrated_machine(file_system);
    const bool processor = backend_of(run).name() == executor::cpu_backend().name();
    if (!measured || (measured->device.cores > 0) != processor) return machine_at_a_guess(file_system, run, ranks);
    if (ranks > 1 && measured->find(cluster::Reach::inside) == nullptr)
      return machine_at_a_guess(file_system, run, ranks);  // how they talk is not known
    measured->devices_per_node = processor ? ranks : std::max(measured->devices_per_node, ranks);
    if (processor) measured->device.reserve = kReserve;
    if (!run.limits.disk_path.empty()) measured->host.disk = free_on_disk(file_system, run);
    return *measured;
  }
  return cluster::preset(name);
}

double bytes_per_operation(const cluster::Cluster& cluster, const config::Run& run) {
  const base::DType dtype = run.precision == model::Precision::f32    ? base::DType::f32
                            : run.precision == model::Precision::fp16 ? base::DType::f16
                                                                      : base::DType::bf16;
  const auto rate = cluster.device.rates.find(dtype);
  if (rate == cluster.device.rates.end() || rate->second <= 0.0) return 0.0;
  double bandwidth = 0.0;
  for (const cluster::Reach reach : {cluster::Reach::host, cluster::Reach::disk}) {
    if (reach == cluster::Reach::disk && run.strategy.offload.activations.disk == 0.0) continue;
    const cluster::Link* link = cluster.find(reach);
    if (link == nullptr) return 0.0;
    const double found = link->bandwidth * link->share;
    bandwidth = bandwidth == 0.0 ? found : std::min(bandwidth, found);
  }
  return bandwidth / (rate->second * cluster.device.matrix_share);
}

double measured_link(io::FileSystem& file_system, const config::Run& run) {
  if (run.strategy.recompute != strategy::Recompute::optimal || !run.strategy.offload.activations.anything()) return 0.0;
  const std::optional<cluster::Cluster> measured = calibrated_machine(file_system);
  const bool processor = backend_of(run).name() == executor::cpu_backend().name();
  if (!measured || (measured->device.cores > 0) != processor) return 0.0;
  return bytes_per_operation(*measured, run);
}

}  // namespace plimsoll::train
