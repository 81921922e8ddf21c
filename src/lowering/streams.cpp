#include "lowering/streams.h"

#include <algorithm>
#include <utility>

namespace plimsoll::lowering {

using plan::StreamKind;

Streams::Streams(plan::Program& program) : program_(program) { line(StreamKind::compute); }

Streams::Line& Streams::line(StreamKind kind) {
  const auto [found, fresh] = lines_.try_emplace(kind);
  if (fresh) {
    found->second.stream = program_.streams.size();
    program_.streams.push_back({.kind = kind, .calls = {}});
  }
  return found->second;
}

plan::TokenId Streams::token_of(Line& from, std::int32_t moment) {
  plan::Call& call = program_.streams[from.stream].calls[from.calls.at(moment)];
  if (!call.signals.valid()) call.signals = {program_.tokens++};
  return call.signals;
}

void Streams::add(plan::Call call, StreamKind kind) {
  call.moment = moment_++;
  Line& own = line(kind);
  if (kind != StreamKind::compute) {
    Line& compute = line(StreamKind::compute);
    if (!compute.calls.empty() && compute.calls.rbegin()->first > own.after_compute) {
      own.after_compute = compute.calls.rbegin()->first;
      call.waits.push_back(token_of(compute, own.after_compute));
    }
    own.open.push_back(call.moment);
  }
  wait_for_lines(call, kind);
  for (plan::BufferId id : call.bindings) own.used_by[id.index] = call.moment;
  own.calls[call.moment] = program_.streams[own.stream].calls.size();
  program_.streams[own.stream].calls.push_back(std::move(call));
}

// Streams run in order: a call that is over says so of those before it.
void Streams::wait_for_lines(plan::Call& call, StreamKind kind) {
  for (auto& [other, from] : lines_) {
    if (other == kind || other == StreamKind::compute) continue;
    std::int32_t newest = kind == StreamKind::compute ? std::exchange(from.settle, -1) : -1;
    for (plan::BufferId id : call.bindings) {
      if (const auto found = from.used_by.find(id.index); found != from.used_by.end()) newest = std::max(newest, found->second);
    }
    if (newest < 0 || over_at_.contains(newest)) continue;
    call.waits.push_back(token_of(from, newest));
    if (kind != StreamKind::compute) continue;
    while (!from.open.empty() && from.open.front() <= newest) {
      over_at_[from.open.front()] = call.moment;
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
  const auto found = over_at_.find(moment);
  return found == over_at_.end() ? moment_ - 1 : found->second - 1;
}

}  // namespace plimsoll::lowering
