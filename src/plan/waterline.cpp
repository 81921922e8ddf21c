#include "plan/waterline.h"

#include <algorithm>
#include <map>

namespace plimsoll::plan {

Waterline waterline(const RankClass& rank_class, std::int32_t program, Tier tier) {
  Waterline line;
  const Program& named = rank_class.programs.at(static_cast<std::size_t>(program));
  const auto calls = static_cast<std::size_t>(moments_of(named));
  std::vector<std::int64_t> change(calls + 1, 0);
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.tier != tier) continue;
    const Bytes bytes = base::round_up(buffer.bytes, kAlignment);
    if (buffer.persistent()) line.persistent += bytes;
    if (buffer.program != program) continue;
    change[static_cast<std::size_t>(buffer.first)] += bytes.count;
    change[static_cast<std::size_t>(buffer.last) + 1] -= bytes.count;
  }
  Bytes alive = line.persistent;
  line.peak = alive;
  for (std::size_t call = 0; call < calls; ++call) {
    alive.count += change[call];
    line.at_call.push_back(alive);
    if (alive > line.peak) {
      line.peak = alive;
      line.peak_call = static_cast<std::int32_t>(call);
    }
  }
  return line;
}

std::vector<std::pair<BufferKind, Bytes>> by_kind(const RankClass& rank_class, std::int32_t program, Tier tier, std::int32_t call) {
  std::map<BufferKind, Bytes> sums;
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.tier != tier) continue;
    const bool alive = buffer.persistent() || (buffer.program == program && buffer.first <= call && call <= buffer.last);
    if (alive) sums[buffer.kind] += base::round_up(buffer.bytes, kAlignment);
  }
  std::vector<std::pair<BufferKind, Bytes>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

}  // namespace plimsoll::plan
