#include "observe/span.h"

#include <algorithm>

namespace plimsoll::observe {

void SpanLog::add(Span span) {
  const std::scoped_lock lock(mutex_);
  spans_.push_back(std::move(span));
}

std::vector<Span> SpanLog::take() {
  const std::scoped_lock lock(mutex_);
  std::vector<Span> taken = std::exchange(spans_, {});
  std::stable_sort(taken.begin(), taken.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return taken;
}

ScopedSpan::ScopedSpan(SpanLog* log, const Clock& clock, std::string_view name, std::string_view category, Lane lane)
    : log_(log), clock_(clock) {
  if (log_ == nullptr) return;
  span_ = {.name = std::string(name), .category = std::string(category), .lane = lane, .begin = clock_.seconds()};
}

ScopedSpan::~ScopedSpan() {
  if (log_ == nullptr) return;
  span_.seconds = clock_.seconds() - span_.begin;
  log_->add(std::move(span_));
}

void ScopedSpan::add_arg(std::string_view key, base::Json value) {
  if (log_ != nullptr) span_.args.emplace_back(std::string(key), std::move(value));
}

}  // namespace plimsoll::observe
