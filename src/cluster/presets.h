// Machines known by name. Rates are the vendors' unless said otherwise; shares are those that published training runs reach.
#pragma once

#include <string_view>
#include <vector>

#include "cluster/cluster.h"

namespace plimsoll::cluster {

// "dgx-a100-80g" (one node) or "dgx-a100-80g:128". bad_input that names the presets, or the nearest of them.
Cluster preset(std::string_view name_and_nodes);

std::vector<std::string_view> preset_names();

// "NAME:N" taken apart; bad_input when N is no count of nodes.
struct NamedCount {
  std::string name;
  std::int64_t nodes = 1;
};
NamedCount name_and_nodes_of(std::string_view text);

}  // namespace plimsoll::cluster
