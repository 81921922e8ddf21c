// Measuring this machine: every operator of a step has samples, what is stored reads back, and forecasts can be made of it.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "config/config.h"
#include "io/posix_file_system.h"
#include "train/foresight/forecast.h"
#include "train/machine/calibrate.h"
#include "train/machine/core_distance.h"
#include "train/setup/this_machine.h"

namespace plimsoll::train {
namespace {

TEST(Calibrate, MeasuresWhatForecastsNeed) {
  io::PosixFileSystem file_system;
  const io::Path folder = std::filesystem::temp_directory_path() / fmt::format("plimsoll-calibrate-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const Calibration calibration = calibrate(file_system, {.scratch = folder, .brief = true});
  const cluster::Cluster& cluster = calibration.cluster;
  EXPECT_GT(calibration.runs, 0);
  EXPECT_LE(calibration.apart, calibration.runs);
  EXPECT_EQ(cluster.device.round_trip > 0.0, cluster.device.cores > 1);
  EXPECT_GE(calibration.farthest, cluster.device.round_trip);
  EXPECT_TRUE(cluster::problems_of(cluster).empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::set<std::string> ops;
  for (const cluster::Sample& sample : cluster.device.samples) ops.insert(sample.op);
  for (const char* op : {"linear", "linear_grad_input", "linear_grad_weight", "attention", "attention_grad", "norm", "norm_grad",
                         "head_loss", "embed", "embed_grad", "update", "squared_norm"})
    EXPECT_TRUE(ops.contains(op)) << op;

  ::setenv("XDG_CONFIG_HOME", folder.c_str(), 1);
  EXPECT_FALSE(calibrated_machine(file_system));
  store_calibration(file_system, calibration_path(), cluster);
  std::optional<cluster::Cluster> read = calibrated_machine(file_system);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->device, cluster.device);
  EXPECT_EQ(read->links, cluster.links);
  std::filesystem::remove_all(folder);

  const config::Run run = config::parse_run(
      R"({"model": {"family": "gpt2", "layers": 2, "width": 128, "heads": 4, "context": 64, "vocab": 512},
          "batch": {"global": 4, "micro": 2, "sequence": 64}, "device": "cpu"})",
      "run.json", {});
  const Forecast result = forecast(run, cluster);
  EXPECT_GT(result.result.seconds, 1e-5);
  EXPECT_LT(result.result.seconds, 100.0);
}

// A word cannot cross a core's cache in less than a nanosecond; a second is no round trip but a stopped machine.
TEST(CoreDistance, IsATimeBetweenCores) {
  const double seconds = core_round_trip();
  if (std::thread::hardware_concurrency() < 2) {
    EXPECT_EQ(seconds, 0.0);
  } else {
    EXPECT_GT(seconds, 1e-9);
    EXPECT_LT(seconds, 1.0);
  }
}

TEST(CoreDistance, ApartIsSeveralTimesTheLeast) {
  EXPECT_FALSE(cores_apart(55e-9, 55e-9));
  EXPECT_TRUE(cores_apart(360e-9, 55e-9));
  EXPECT_FALSE(cores_apart(87e-9, 55e-9));  // somebody else's work, not another place
  EXPECT_FALSE(cores_apart(0.0, 0.0));
}

// Recompute and offload are weighed by what the link carries while the device computes: of the slowest link on the way.
TEST(Link, IsBytesInTheTimeOfOneOperation) {
  cluster::Cluster cluster;
  cluster.device.rates = {{base::DType::f32, 1e12}, {base::DType::bf16, 4e12}};
  cluster.device.matrix_share = 0.5;
  cluster.links = {{.name = "host", .reach = cluster::Reach::host, .bandwidth = 10e9, .share = 0.8},
                   {.name = "disk", .reach = cluster::Reach::disk, .bandwidth = 2e9}};
  config::Run run;
  run.precision = model::Precision::f32;
  EXPECT_DOUBLE_EQ(bytes_per_operation(cluster, run), 8e9 / 0.5e12);
  run.precision = model::Precision::bf16;
  EXPECT_DOUBLE_EQ(bytes_per_operation(cluster, run), 8e9 / 2e12);
  run.strategy.offload.activations.disk = 1.0;
  EXPECT_DOUBLE_EQ(bytes_per_operation(cluster, run), 2e9 / 2e12);
  cluster.links.clear();
  EXPECT_EQ(bytes_per_operation(cluster, run), 0.0);
}

}  // namespace
}  // namespace plimsoll::train
