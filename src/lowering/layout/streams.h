// The streams of a program as calls are added to them, with the tokens between them.
//
// A call on another stream than compute waits for the compute call before it, so what is free at its moment is free for it; any
// call waits for the newest call of each other stream that shares a buffer with it, unless it knows that one to be over from a call
// that it waits for anyway. What such a call uses lives until a compute call is known to run after it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "plan/plan.h"

namespace plimsoll::lowering {

class Streams {
 public:
  explicit Streams(plan::Program& program);

  // Appends the call at the next moment, with its waits.
  void add(plan::Call call, plan::StreamKind kind);

  // The next compute call waits for the calls that the stream has had up to `moment`.
  void settle(plan::StreamKind kind, std::int32_t moment);

  std::int32_t moments() const { return moment_; }

  // The last moment before the call at `moment` is known to be over; the program's last if no compute call waits for it.
  std::int32_t busy_until(std::int32_t moment) const;

 private:
  struct Line {
    std::size_t stream = 0;             // in the program
    std::vector<std::int32_t> used_by;  // by buffer: the last call here that uses it, or -1
    std::vector<std::int32_t> moments;  // of its calls, in order
    std::deque<std::int32_t> open;      // calls not known by compute to be over
    std::int32_t settle = -1;

    std::int32_t last_use(plan::BufferId id) const { return id.index < used_by.size() ? used_by[id.index] : -1; }
  };

  // By kind of stream: the newest call that is known to be over, or -1. There is one for each of millions of calls.
  using Known = std::array<std::int32_t, static_cast<std::size_t>(plan::StreamKind::host_compute) + 1>;
  static std::int32_t& entry(Known& known, plan::StreamKind kind) { return known[static_cast<std::size_t>(kind)]; }

  Line& line(plan::StreamKind kind);
  plan::TokenId token_of(const Line& line, std::int32_t moment);
  void learn(Known& known, plan::StreamKind kind, std::int32_t moment) const;
  void wait_for_lines(plan::Call& call, plan::StreamKind kind, Known& known);
  bool is_over(std::int32_t moment) const { return over_at_[static_cast<std::size_t>(moment)] >= 0; }

  plan::Program& program_;
  std::int32_t moment_ = 0;
  std::map<plan::StreamKind, Line> lines_;
  std::vector<std::int32_t> over_at_;  // by moment: the compute call that knows the call there to be over, or -1
  std::vector<Known> known_;           // by moment: what the call there knows when it starts
};

}  // namespace plimsoll::lowering
