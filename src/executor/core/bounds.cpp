#include "executor/core/bounds.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace plimsoll::executor {

namespace {

using plan::StreamKind;

struct Interval {
  double begin = 0.0;
  double end = 0.0;
};
using Intervals = std::vector<Interval>;  // apart, in order

Intervals joined(Intervals all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  Intervals apart;
  for (const Interval& next : all) {
    if (!apart.empty() && next.begin <= apart.back().end) {
      apart.back().end = std::max(apart.back().end, next.end);
    } else {
      apart.push_back(next);
    }
  }
  return apart;
}

double length(const Intervals& intervals) {
  double sum = 0.0;
  for (const Interval& interval : intervals) sum += interval.end - interval.begin;
  return sum;
}

double common(const Intervals& a, const Intervals& b) {
  double sum = 0.0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    (a[i].end < b[j].end ? i : j)++;
  }
  return sum;
}

}  // namespace

std::string_view resource_name(StreamKind kind) {
  switch (kind) {
    case StreamKind::compute: return "the device";
    case StreamKind::communication: return "collectives";
    case StreamKind::send: return "sending to other stages";
    case StreamKind::receive: return "receiving from other stages";
    case StreamKind::host_in: return "the link to the device";
    case StreamKind::host_out: return "the link to the host";
    case StreamKind::disk_in: return "reading the disk";
    case StreamKind::disk_out: return "writing the disk";
    case StreamKind::host_compute: return "the host's processor";
  }
  return "?";
}

StreamKind StepBounds::bounded_by() const {
  StreamKind bound = StreamKind::compute;
  double most = seconds - idle;
  for (const ResourceUse& use : uses) {
    if (use.kind != StreamKind::compute && use.busy > most) {
      most = use.busy;
      bound = use.kind;
    }
  }
  return bound;
}

StepBounds bounds_of(const plan::Program& program, const Timeline& timeline) {
  StepBounds bounds;
  std::map<StreamKind, Intervals> by_kind;
  for (const TimelineEvent& event : timeline.events) {
    if (!event.kernel.empty()) continue;
    by_kind[program.streams[static_cast<std::size_t>(event.stream)].kind].push_back({event.begin, event.end});
    bounds.seconds = std::max(bounds.seconds, event.end);
  }
  for (auto& [kind, intervals] : by_kind) intervals = joined(std::move(intervals));
  const Intervals& computing = by_kind[StreamKind::compute];
  bounds.idle = bounds.seconds - length(computing);
  for (const auto& [kind, intervals] : by_kind) {
    const double busy = length(intervals);
    bounds.uses.push_back(
        {.kind = kind, .busy = busy, .waited_for = kind == StreamKind::compute ? 0.0 : busy - common(intervals, computing)});
  }
  for (const Surrounding& around : timeline.around) {
    bounds.seconds += around.seconds;
    bounds.idle += around.seconds;
    const StreamKind kind = around.before ? StreamKind::disk_in : StreamKind::disk_out;
    const auto known = std::find_if(bounds.uses.begin(), bounds.uses.end(), [&](const ResourceUse& use) { return use.kind == kind; });
    ResourceUse& use = known != bounds.uses.end() ? *known : bounds.uses.emplace_back(ResourceUse{.kind = kind});
    use.busy += around.seconds;
    use.waited_for += around.seconds;
  }
  std::stable_sort(bounds.uses.begin() + 1, bounds.uses.end(),
                   [](const ResourceUse& a, const ResourceUse& b) { return a.waited_for > b.waited_for; });
  return bounds;
}

std::string to_string(const StepBounds& bounds) {
  std::string text = fmt::format("a step of {:.1f} ms:", bounds.seconds * 1e3);
  for (const ResourceUse& use : bounds.uses) {
    text += fmt::format("{} {} {:.1f} ms", use.kind == StreamKind::compute ? "" : ",", resource_name(use.kind), use.busy * 1e3);
    if (use.waited_for > 0.0) text += fmt::format(" ({:.1f} while the device waits)", use.waited_for * 1e3);
  }
  return text + fmt::format("; {} bounds it, and the device computes for {:.0f}% of it", resource_name(bounds.bounded_by()),
                            100.0 * (bounds.seconds - bounds.idle) / std::max(bounds.seconds, 1e-12));
}

}  // namespace plimsoll::executor
