// Measures this machine's processor: how long every operator takes on the shapes of small models as training runs them, how fast ranks
// exchange data, memory is copied and a disk is read and written. The result is a cluster like any other (cluster/file.h).
//
// Who shares the machine slows it down for seconds at a time. So the models are run through twice, and each operator is taken from the
// pass in which it was faster: forecasts are of steps that nobody disturbs. Within a pass it is the mean that counts, since a step is a
// sum.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "cluster/cluster.h"
#include "io/file_system.h"

namespace plimsoll::train {

struct CalibrationOptions {
  io::Path scratch = ".";                               // a folder on the disk to measure
  std::function<void(std::string_view)> progress = {};  // told what is measured next
  bool brief = false;                                   // a few shapes only: seconds instead of a minute or two
};

cluster::Cluster calibrate(io::FileSystem& file_system, const CalibrationOptions& options = {});

// Where the measurements of this machine are kept: plimsoll/this.json in the user's folder of settings.
io::Path calibration_path();

// What was measured here; nullopt when nothing was.
std::optional<cluster::Cluster> calibrated_machine(io::FileSystem& file_system);

void store_calibration(io::FileSystem& file_system, const io::Path& path, const cluster::Cluster& cluster);

}  // namespace plimsoll::train
