#include <unistd.h>

#include <chrono>

#include <fmt/format.h>

#include "base/json.h"
#include "base/processor.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "cluster/file.h"
#include "executor/cpu/cpu_backend.h"
#include "io/posix_file_system.h"
#include "train/machine/calibrate.h"
#include "train/machine/calibrate_gpu.h"
#include "train/machine/core_distance.h"
#include "train/setup/setup.h"

namespace plimsoll::cli {

namespace {

// A bad path is told now, not after minutes of measuring.
void require_folders(io::FileSystem& file_system, const CalibrateOptions& options, const io::Path& out) {
  const auto require = [&](std::string_view option, const io::Path& folder) {
    const auto status = file_system.status(folder);
    if (!status || status->kind != io::EntryKind::directory)
      base::bad_input("{}: found no folder '{}', expected one that is there", option, folder.string());
  };
  require("--scratch", options.scratch.empty() ? io::Path(".") : io::Path(options.scratch));
  if (!options.out.empty()) require("--out", out.has_parent_path() ? out.parent_path() : io::Path("."));
}

void print_processor() { fmt::print("  {:<12} {}\n", "instructions", base::to_string(base::processor())); }

void show_cores(bool json) {
  const double seconds = train::core_round_trip();
  if (json) {
    base::Json result = base::Json::object();
    result.set("round_trip", base::Json(seconds));
    fmt::print("{}\n", base::write_json(result));
  } else {
    fmt::print("{:.0f} ns from one core to another and back\n", seconds * 1e9);
    print_processor();
  }
}

void print_cores(const train::Calibration& calibration) {
  const double nearest = calibration.cluster.device.round_trip;
  if (nearest <= 0.0) return;
  fmt::print("  {:<12} {:.0f} ns from one to another and back\n", "cores", nearest * 1e9);
  if (calibration.apart == 0) return;
  fmt::print(
      "  {:<12} apart ({:.0f} ns) during {} of {} measurements: the machine moves them. Those were set aside{}\n", "",
      calibration.farthest * 1e9, calibration.apart, calibration.runs,
      calibration.only_apart == 0
          ? ""
          : fmt::format(", but for {} of which no other was made in time; measure again for better forecasts", calibration.only_apart));
}

}  // namespace

void calibrate_command(const CalibrateOptions& options) {
  if (options.cores) return show_cores(options.json);
  io::PosixFileSystem file_system;
  const io::Path path = options.out.empty() ? train::calibration_path() : io::Path(options.out);
  require_folders(file_system, options, path);
  const auto begin = std::chrono::steady_clock::now();
  const bool talks = !options.json && isatty(STDERR_FILENO) != 0;
  train::CalibrationOptions asked{.scratch = options.scratch};
  if (talks) asked.progress = [](std::string_view what) { say("measuring {}\n", what); };
  config::Run where;
  where.name = "calibrate";
  where.device = options.device;
  const executor::Backend& backend = train::backend_of(where);
  const bool gpu = backend.name() != executor::cpu_backend().name();
  train::CalibrationOptions around = asked;
  around.brief = gpu;  // beside a GPU the processor's own operators are of no interest
  train::Calibration calibration = train::calibrate(file_system, around);
  cluster::Cluster& cluster = calibration.cluster;
  if (gpu) cluster = train::calibrate_gpu(backend, std::move(cluster), asked);
  train::store_calibration(file_system, path, cluster);
  if (options.json) {
    fmt::print("{}\n", base::write_json(cluster::to_json(cluster), base::JsonLayout::pretty));
    return;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{}, {} of memory\n", cluster.device.name, base::to_string(cluster.device.memory));
  for (const auto& [dtype, rate] : cluster.device.rates)
    fmt::print("  {:<12} {:.4g} GFLOP/s at best in matrix products\n", base::name_of(dtype), rate / 1e9);
  print_processor();
  print_cores(calibration);
  fmt::print("  {:<12} {:.3g} GB/s\n", "memory", cluster.device.bandwidth / 1e9);
  for (const cluster::Link& link : cluster.links)
    fmt::print("  {:<12} {:.3g} GB/s, {:.3g} us\n", cluster::name_of(link.reach), link.bandwidth / 1e9, link.latency * 1e6);
  fmt::print("  {} samples of operators, measured in {:.0f} s, stored in {}\n", cluster.device.samples.size(), seconds, path.string());
}

}  // namespace plimsoll::cli
