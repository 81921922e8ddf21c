#include "collectives/transport.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace plimsoll::collectives {

std::unique_ptr<Group> Transport::make_world(std::string name) {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return make_group(ranks, std::move(name));
}

base::ErrorKind kind_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const base::Error*>(&error);
  return ours == nullptr ? base::ErrorKind::other : ours->kind();
}

int position_of(int rank, std::span<const int> ranks, int transport_size, std::string_view name) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  PLIMSOLL_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "group '{}' names a rank twice", name);
  PLIMSOLL_CHECK(!sorted.empty() && sorted.front() >= 0 && sorted.back() < transport_size, "group '{}' has ranks outside 0..{}", name,
                 transport_size - 1);
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  PLIMSOLL_CHECK(found != ranks.end(), "rank {} makes group '{}' without being in it", rank, name);
  return static_cast<int>(found - ranks.begin());
}

}  // namespace plimsoll::collectives
