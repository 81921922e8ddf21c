#include "lowering/layout/streams.h"

#include <algorithm>
#include <utility>

namespace plimsoll::lowering {

using plan::StreamKind;

Streams::Streams(plan::Program& program) : program_(program) { line(StreamKind::compute); }

Streams::Line& Streams::line(StreamKind kind) {
  const auto [found, fresh] = lines_.try_emplace(kind);
  if (fresh) {
    found->second.stream = program_.streams.size();
    program_.streams.edit().push_back({.kind = kind, .calls = {}});
  }
  return found->second;
}

plan::TokenId Streams::token_of(const Line& from, std::int32_t moment) {
  const auto index = std::lower_bound(from.moments.begin(), from.moments.end(), moment) - from.moments.begin();
  plan::Call& call = program_.streams[from.stream].calls[static_cast<std::size_t>(index)];
  if (!call.signals.valid()) call.signals = {program_.tokens++};
  return call.signals;
}

// Streams run in order: a call that is over says so of those before it, and of all that they waited for.
void Streams::learn(Known& known, StreamKind kind, std::int32_t moment) const {
  const Known& before = known_[static_cast<std::size_t>(moment)];
  for (std::size_t of = 0; of < known.size(); ++of) known[of] = std::max(known[of], before[of]);
  entry(known, kind) = std::max(entry(known, kind), moment);
}

void Streams::add(plan::Call call, StreamKind kind) {
  call.moment = moment_++;
  over_at_.push_back(-1);
  Line& own = line(kind);
  Known known;
  known.fill(-1);
  if (!own.moments.empty()) learn(known, kind, own.moments.back());
  if (kind != StreamKind::compute) {
    Line& compute = line(StreamKind::compute);
    if (!compute.moments.empty() && compute.moments.back() > entry(known, StreamKind::compute)) {
      call.waits.push_back(token_of(compute, compute.moments.back()));
      learn(known, StreamKind::compute, compute.moments.back());
    }
    own.open.push_back(call.moment);
  }
  wait_for_lines(call, kind, known);
  for (plan::BufferId id : call.bindings) {
    if (id.index >= own.used_by.size()) own.used_by.resize(id.index + 1, -1);
    own.used_by[id.index] = call.moment;
  }
  own.moments.push_back(call.moment);
  known_.push_back(known);
  program_.streams[own.stream].calls.push_back(std::move(call));
}

void Streams::wait_for_lines(plan::Call& call, StreamKind kind, Known& known) {
  for (auto& [other, from] : lines_) {
    if (other == kind || other == StreamKind::compute) continue;
    std::int32_t newest = kind == StreamKind::compute ? std::exchange(from.settle, -1) : -1;
    for (plan::BufferId id : call.bindings) newest = std::max(newest, from.last_use(id));
    if (newest <= entry(known, other)) continue;
    call.waits.push_back(token_of(from, newest));
    learn(known, other, newest);
  }
  if (kind != StreamKind::compute) return;
  for (auto& [other, from] : lines_) {
    while (!from.open.empty() && from.open.front() <= entry(known, other)) {
      over_at_[static_cast<std::size_t>(from.open.front())] = call.moment;
      from.open.pop_front();
    }
  }
}

void Streams::settle(StreamKind kind, std::int32_t moment) {
  if (moment < 0) return;
  Line& from = line(kind);
  from.settle = std::max(from.settle, moment);
}

std::int32_t Streams::busy_until(std::int32_t moment) const {
  return is_over(moment) ? over_at_[static_cast<std::size_t>(moment)] - 1 : moment_ - 1;
}

}  // namespace plimsoll::lowering
