// Spans: named stretches of time on a lane (a process and a thread of the picture: a rank and one of its streams).
//
// Whoever runs something writes spans to a SpanLog when it was given one and nothing when it was not; what becomes of
// them (a Chrome trace, a breakdown) is the reader's business.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "observe/clock.h"

namespace plimsoll::observe {

struct Lane {
  std::int64_t process = 0;  // rank
  std::int64_t thread = 0;   // stream of the rank

  auto operator<=>(const Lane&) const = default;
};

struct Span {
  std::string name;
  std::string category;
  Lane lane;
  double begin = 0.0;                                         // seconds
  double seconds = 0.0;                                       // how long
  std::vector<std::pair<std::string, base::Json>> args = {};  // shown when the span is clicked: bytes, flops, shapes
};

// Collects spans from several threads.
class SpanLog {
 public:
  explicit SpanLog(std::size_t expected = 0) { spans_.reserve(expected); }
  void add(Span span);
  std::vector<Span> take();  // in order of begin; leaves the log empty

 private:
  std::mutex mutex_;
  std::vector<Span> spans_;
};

// The span from here to the end of the scope. A null log costs nothing but the test.
class ScopedSpan {
 public:
  ScopedSpan(SpanLog* log, const Clock& clock, std::string_view name, std::string_view category, Lane lane);
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;
  ~ScopedSpan();

  void add_arg(std::string_view key, base::Json value);

 private:
  SpanLog* log_;
  const Clock& clock_;
  Span span_;
};

}  // namespace plimsoll::observe
