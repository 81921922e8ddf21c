#include "plan/problems.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <queue>

namespace plimsoll::plan {

// Sweeps by moment: what is alive is in the order of its addresses, without overlap, so a
// newcomer is compared with its neighbours alone.
void check_overlap(std::vector<Extent> extents, std::string_view where, const std::function<std::string(std::uint32_t)>& name_of,
                   Report& report) {
  std::erase_if(extents, [](const Extent& extent) { return extent.begin == extent.end; });
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.first < b.first; });
  std::map<std::int64_t, const Extent*> alive;  // by begin
  using End = std::pair<std::int64_t, std::int64_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;  // last moment, begin
  for (const Extent& extent : extents) {
    for (; !ends.empty() && ends.top().first < extent.first; ends.pop()) alive.erase(ends.top().second);
    const auto next = alive.lower_bound(extent.begin);
    const Extent* other = next != alive.end() && next->second->begin < extent.end ? next->second : nullptr;
    if (next != alive.begin() && std::prev(next)->second->end > extent.begin) other = std::prev(next)->second;
    if (other != nullptr) {
      return report("{}: {} [{}, {}) and {} [{}, {}) are alive at once and overlap", where, name_of(other->owner), other->begin, other->end,
                    name_of(extent.owner), extent.begin, extent.end);
    }
    alive.emplace_hint(next, extent.begin, &extent);
    ends.emplace(extent.last, extent.begin);
  }
}

}  // namespace plimsoll::plan
