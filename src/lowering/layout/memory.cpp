// Placing rectangles (lifetime x bytes) on a strip is NP-hard; greedy first fit in a good order is within a percent or
// two of the lower bound on training steps, where most lifetimes nest (a block's activations live from its forward to
// its backward).
#include "lowering/layout/memory.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

namespace plimsoll::lowering {

namespace {

using base::Bytes;

constexpr std::size_t kFewLifetimes = 8192;

// Smaller buffers are copied on their way to a drive: a page for each would be more than they are.
constexpr Bytes kLeastPaged{64 * 1024};

struct Placed {
  Bytes begin;
  Bytes end;
  std::int32_t first;
  std::int32_t last;
};

// Lowest gap, among what was placed before and shares a moment, that holds each lifetime in turn.
Layout place_in_order(const std::vector<Lifetime>& lifetimes, const std::vector<std::size_t>& order) {
  Layout layout;
  layout.offsets.resize(lifetimes.size());
  std::vector<Placed> placed;  // by begin
  placed.reserve(lifetimes.size());
  for (std::size_t index : order) {
    const Lifetime& lifetime = lifetimes[index];
    Bytes offset{0};
    for (const Placed& other : placed) {
      if (other.begin >= offset + lifetime.bytes) break;
      if (other.last < lifetime.first || other.first > lifetime.last || other.end <= offset) continue;
      offset = other.end;
    }
    const Placed mine{offset, offset + lifetime.bytes, lifetime.first, lifetime.last};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), mine, [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                  mine);
    layout.offsets[index] = offset;
    layout.total = std::max(layout.total, mine.end);
  }
  return layout;
}

// In the order of their beginnings: what has ended gives its place back, so only the gaps between what is alive are looked at.
// Takes the lowest gap that fits, or the tightest.
Layout place_by_time(const std::vector<Lifetime>& lifetimes, const std::vector<std::size_t>& order, bool tightest) {
  Layout layout;
  layout.offsets.resize(lifetimes.size());
  std::map<std::int64_t, std::int64_t> gaps{{0, std::numeric_limits<std::int64_t>::max()}};  // begin -> end; the last has no end
  using Ending = std::pair<std::int32_t, std::size_t>;                                       // last moment, lifetime
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> alive;
  const auto give_back = [&](std::int64_t begin, std::int64_t end) {
    auto after = gaps.lower_bound(begin);
    if (after != gaps.end() && after->first == end) {
      end = after->second;
      after = gaps.erase(after);
    }
    if (after != gaps.begin() && std::prev(after)->second == begin) {
      std::prev(after)->second = end;
    } else {
      gaps.emplace(begin, end);
    }
  };
  for (std::size_t index : order) {
    const Lifetime& lifetime = lifetimes[index];
    const std::int64_t bytes = lifetime.bytes.count;
    if (bytes == 0) continue;
    for (; !alive.empty() && alive.top().first < lifetime.first; alive.pop()) {
      const std::size_t ended = alive.top().second;
      give_back(layout.offsets[ended].count, (layout.offsets[ended] + lifetimes[ended].bytes).count);
    }
    auto chosen = gaps.end();
    for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
      const std::int64_t room = gap->second - gap->first;
      if (room < bytes || (chosen != gaps.end() && room >= chosen->second - chosen->first)) continue;
      chosen = gap;
      if (!tightest || room == bytes) break;
    }
    const std::int64_t begin = chosen->first;
    const std::int64_t end = chosen->second;
    auto rest = gaps.extract(chosen);
    if (begin + bytes < end) {
      rest.key() = begin + bytes;
      gaps.insert(std::move(rest));
    }
    layout.offsets[index] = Bytes{begin};
    layout.total = std::max(layout.total, Bytes{begin + bytes});
    alive.emplace(lifetime.last, index);
  }
  return layout;
}

Bytes most_alive(const std::vector<Lifetime>& lifetimes) {
  std::int32_t end = 0;
  for (const Lifetime& lifetime : lifetimes) end = std::max(end, lifetime.last + 1);
  std::vector<std::int64_t> change(static_cast<std::size_t>(end) + 1);  // by moment
  for (const Lifetime& lifetime : lifetimes) {
    change[static_cast<std::size_t>(lifetime.first)] += lifetime.bytes.count;
    change[static_cast<std::size_t>(lifetime.last) + 1] -= lifetime.bytes.count;
  }
  std::int64_t alive = 0;
  std::int64_t peak = 0;
  for (const std::int64_t delta : change) {
    alive += delta;
    peak = std::max(peak, alive);
  }
  return {peak};
}

}  // namespace

Layout assign_offsets(const std::vector<Lifetime>& given, Bytes alignment) {
  std::vector<Lifetime> lifetimes = given;
  for (Lifetime& lifetime : lifetimes) lifetime.bytes = base::round_up(lifetime.bytes, alignment);
  const auto length = [&](std::size_t index) { return std::int64_t{lifetimes[index].last} - lifetimes[index].first + 1; };
  const auto size = [&](std::size_t index) { return lifetimes[index].bytes.count; };
  const auto area = [&](std::size_t index) { return static_cast<double>(size(index)) * static_cast<double>(length(index)); };

  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const Bytes peak = most_alive(lifetimes);
  Layout best;
  const auto keep = [&](Layout layout) {
    if (best.offsets.empty() || layout.total < best.total) best = std::move(layout);
  };
  const auto try_order = [&](auto before) {
    if (best.total == peak) return;
    std::vector<std::size_t> sorted = order;
    std::stable_sort(sorted.begin(), sorted.end(), before);
    keep(place_in_order(lifetimes, sorted));
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lifetimes[a].first < lifetimes[b].first; });
  keep(place_by_time(lifetimes, order, false));
  if (best.total != peak) keep(place_by_time(lifetimes, order, true));
  // Other orders look at everything placed before: worth it while that is not much.
  if (lifetimes.size() <= kFewLifetimes) {
    try_order([&](std::size_t a, std::size_t b) { return length(a) > length(b); });
    try_order([&](std::size_t a, std::size_t b) { return size(a) > size(b); });
    try_order([&](std::size_t a, std::size_t b) { return area(a) > area(b); });
  }
  best.peak = peak;
  return best;
}

Layout lay_out(const std::vector<Lifetime>& lifetimes, plan::Tier tier, Bytes persistent, bool drives) {
  Layout all{.offsets = std::vector<Bytes>(lifetimes.size()), .total = persistent, .peak = {}};
  Bytes begin = persistent;
  for (const bool paged : {true, false}) {
    const Bytes alignment = plan::alignment_of(paged ? plan::Tier::disk : tier);
    std::vector<Lifetime> some;
    std::vector<std::size_t> which;
    for (std::size_t index = 0; index < lifetimes.size(); ++index) {
      if ((tier == plan::Tier::host && drives && lifetimes[index].bytes >= kLeastPaged) != paged) continue;
      some.push_back(lifetimes[index]);
      which.push_back(index);
    }
    if (some.empty()) continue;
    begin = base::round_up(begin, alignment);
    const Layout layout = assign_offsets(some, alignment);
    for (std::size_t index = 0; index < some.size(); ++index) {
      const Bytes offset = all.offsets[which[index]] = begin + layout.offsets[index];
      all.total = std::max(all.total, offset + base::round_up(some[index].bytes, plan::alignment_of(tier)));
    }
    begin += layout.total;
    all.peak += layout.peak;
  }
  return all;
}

}  // namespace plimsoll::lowering
