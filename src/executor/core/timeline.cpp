#include "executor/core/timeline.h"

#include <algorithm>
#include <map>

namespace plimsoll::executor {

std::vector<KernelTime> by_kernel(const Timeline& timeline) {
  std::map<std::string, KernelTime> sums;
  for (const TimelineEvent& event : timeline.events) {
    if (event.kernel.empty()) continue;
    KernelTime& sum = sums[event.kernel];
    sum.kernel = event.kernel;
    ++sum.runs;
    sum.seconds += event.end - event.begin;
  }
  std::vector<KernelTime> sorted;
  for (const auto& [kernel, sum] : sums) sorted.push_back(sum);
  std::stable_sort(sorted.begin(), sorted.end(), [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
  return sorted;
}

}  // namespace plimsoll::executor
