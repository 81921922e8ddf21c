// Prices between measured samples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "cluster/cluster.h"

namespace plimsoll::cost {

struct SampleQuery {
  std::string_view op;
  cluster::DType dtype = cluster::DType::f32;
  std::int64_t threads = 0;
  std::array<std::int64_t, 3> extents{1, 1, 1};
};

// nullopt where the device has no sample of the operator with that element type. Where none has as many threads, those with the nearest
// count are taken, and their times scaled as if threads divided the work.
//
// What is interpolated is the time for a unit of work (the product of the extents), over the logarithms of the extents: along one
// extent by straight lines, over several by the nearest samples, each weighing less the further away it is. Outside of what was
// measured the outermost rate holds; below it, the time of the smallest sample is the least.
std::optional<double> seconds_between(const std::vector<cluster::Sample>& samples, const SampleQuery& query);

}  // namespace plimsoll::cost
