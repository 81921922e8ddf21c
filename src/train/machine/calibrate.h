// Measures this machine's processor: how long every operator takes on the shapes of small models as training runs them, how fast ranks
// exchange data, memory is copied and a disk is read and written. The result is a cluster like any other (cluster/file.h).
//
// Who shares the machine slows it down for seconds at a time, and a virtual machine's cores are together or apart as the host moves them
// (core_distance.h). So everything is measured once, then all of it again, and each figure is the best of its passes in which the cores
// were together; what has too few of those is measured once more while there is time. Forecasts are of steps that nobody disturbs. Within a
// pass it is the mean that counts, since a step is a sum.
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

struct Calibration {
  cluster::Cluster cluster{};
  // Measurements, those of them during which cores were apart, and figures of which no other was made in time.
  int runs = 0;
  int apart = 0;
  int only_apart = 0;
  double farthest = 0.0;  // seconds of the longest round trip between cores
};

Calibration calibrate(io::FileSystem& file_system, const CalibrationOptions& options = {});

// Where the measurements of this machine are kept: plimsoll/this.json in the user's folder of settings.
io::Path calibration_path();

// What was measured here; nullopt when nothing was.
std::optional<cluster::Cluster> calibrated_machine(io::FileSystem& file_system);

void store_calibration(io::FileSystem& file_system, const io::Path& path, const cluster::Cluster& cluster);

}  // namespace plimsoll::train
