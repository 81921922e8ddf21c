#include "plan/waterline.h"

#include <algorithm>
#include <map>
#include <set>

#include "ops/live_rows.h"
#include "plan/instructions.h"

namespace plimsoll::plan {

namespace {

// What begins and ends at each moment of the program, of the buffers that `counts`.
template <typename Counts>
std::vector<std::int64_t> changes(const RankClass& rank_class, std::int32_t program, const Counts& counts) {
  const auto moments = static_cast<std::size_t>(moments_of(rank_class.programs.at(static_cast<std::size_t>(program))));
  std::vector<std::int64_t> change(moments + 1, 0);
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.program != program || !counts(buffer)) continue;
    const Bytes bytes = base::round_up(buffer.bytes, alignment_of(buffer.tier));
    change[static_cast<std::size_t>(buffer.first)] += bytes.count;
    change[static_cast<std::size_t>(buffer.last) + 1] -= bytes.count;
  }
  return change;
}

}  // namespace

Waterline waterline(const RankClass& rank_class, std::int32_t program, Tier tier) {
  Waterline line;
  for (const Buffer& buffer : rank_class.buffers) {
    if (buffer.tier == tier && buffer.persistent()) line.persistent += base::round_up(buffer.bytes, alignment_of(buffer.tier));
  }
  const std::vector<std::int64_t> change = changes(rank_class, program, [&](const Buffer& buffer) { return buffer.tier == tier; });
  Bytes alive = line.persistent;
  line.peak = alive;
  for (std::size_t call = 0; call + 1 < change.size(); ++call) {
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
    if (alive) sums[buffer.kind] += base::round_up(buffer.bytes, alignment_of(buffer.tier));
  }
  std::vector<std::pair<BufferKind, Bytes>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::vector<BoundedRows> bounded_rows(const Plan& plan, const RankClass& rank_class, const Program& program) {
  std::set<BoundedRows> found;
  match_all(
      plan, program,
      [&](const Call& call, const Compute& compute) {
        if (!compute.live) return;
        const LiveRows& live = *compute.live;
        const std::string& name = rank_class.buffers[call.bindings[live.count.index]].name;
        found.insert({.name = name.substr(0, name.find('@')),  // without the micro-batch's number
                      .bound = live.bound,
                      .expected = ops::expected_rows(live.bound, live.expected)});
      },
      kIgnoreOthers);
  return {found.begin(), found.end()};
}

Bytes most_of_kind(const RankClass& rank_class, std::int32_t program, Tier tier, BufferKind kind) {
  Bytes alive{0};
  Bytes most{0};
  for (std::int64_t change :
       changes(rank_class, program, [&](const Buffer& buffer) { return buffer.tier == tier && buffer.kind == kind; })) {
    alive.count += change;
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace plimsoll::plan
