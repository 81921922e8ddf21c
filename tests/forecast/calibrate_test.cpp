// Measuring this machine: every operator of a step has samples, what is stored reads back, and forecasts can be made of it.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "config/config.h"
#include "io/posix_file_system.h"
#include "train/calibrate.h"
#include "train/forecast.h"

namespace plimsoll::train {
namespace {

TEST(Calibrate, MeasuresWhatForecastsNeed) {
  io::PosixFileSystem file_system;
  const io::Path folder = std::filesystem::temp_directory_path() / fmt::format("plimsoll-calibrate-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const cluster::Cluster cluster = calibrate(file_system, {.scratch = folder, .brief = true});
  EXPECT_TRUE(cluster::problems_of(cluster).empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::set<std::string> ops;
  for (const cluster::Sample& sample : cluster.device.samples) ops.insert(sample.op);
  for (const char* op : {"linear", "linear_grad_input", "linear_grad_weight", "attention", "attention_grad", "norm", "norm_grad",
                         "head_loss", "embed", "embed_grad", "adam_update", "squared_norm"})
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

}  // namespace
}  // namespace plimsoll::train
