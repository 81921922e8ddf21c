// Clusters as JSON: what users write about their own, and what `plimsoll calibrate` stores. docs/clusters.md lists the keys.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "cluster/cluster.h"

namespace plimsoll::cluster {

inline constexpr std::int64_t kLargestFile = std::int64_t{64} << 20;  // bytes; more is no description of a cluster

// bad_input with line and column for unknown keys and values of the wrong kind, and with all problems for an impossible cluster.
// `"preset": "dgx-h100"` starts from a preset, of which the other keys then change parts.
Cluster parse_cluster(std::string_view text, std::string_view name);

base::Json to_json(const Cluster& cluster);

}  // namespace plimsoll::cluster
