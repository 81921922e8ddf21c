// Of measuring this machine (calibrate.h), what moves bytes: exchanges between ranks, copies in memory, a disk.
#pragma once

#include "cluster/cluster.h"
#include "io/file_system.h"

namespace plimsoll::train {

struct Moves {
  // Seconds of exchanges between two ranks: a small one, a large one, and a large one that is added up; 0 without ranks.
  double small = 0.0;
  double large = 0.0;
  double summed = 0.0;
  // Bytes a second, of the disk read and written at once.
  double copies = 0.0;
  double disk = 0.0;
};

// `scratch` is a folder on the disk; `ranks`: whether there are cores for two.
Moves measure_moves(io::FileSystem& file_system, const io::Path& scratch, bool ranks);

// Each figure from the one in which it is better.
Moves better_of(const Moves& a, const Moves& b);

cluster::Link exchange_link(const Moves& moves);

}  // namespace plimsoll::train
