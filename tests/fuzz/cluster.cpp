// Cluster files: what is accepted can be priced, and reads back from what is written of it.
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "cluster/file.h"
#include "cost/transfer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace plimsoll;
  try {
    const cluster::Cluster cluster = cluster::parse_cluster({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!(cluster::parse_cluster(base::write_json(cluster::to_json(cluster)), "fuzz") == cluster)) std::abort();
    if (cluster.devices() > 1) {
      const std::vector<cost::Group> all = cost::groups_of(cluster, cluster.devices(), 1, cluster.devices());
      const double seconds = cost::slowest_collective(cluster, ops::CollectiveKind::all_reduce, 1e6, all).seconds;
      if (std::isnan(seconds) || seconds < 0.0) std::abort();
    }
  } catch (const base::Error&) {
  }
  return 0;
}
