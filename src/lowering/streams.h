// The streams of a program as calls are added to them, with the tokens between them.
//
// A call on another stream than compute waits for the compute call before it, so what is free at its moment is free for it; any
// call waits for the newest call of each other stream that shares a buffer with it. What such a call uses lives until a compute
// call is known to run after it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

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
    std::size_t stream = 0;                                   // in the program
    std::unordered_map<std::uint32_t, std::int32_t> used_by;  // buffer -> last call here that uses it
    std::deque<std::int32_t> open;                            // calls not known by compute to be over
    std::map<std::int32_t, std::size_t> calls;                // moment -> index
    std::int32_t after_compute = -1;                          // the compute call that its newest call waited for
    std::int32_t settle = -1;
  };

  Line& line(plan::StreamKind kind);
  plan::TokenId token_of(Line& line, std::int32_t moment);
  void wait_for_lines(plan::Call& call, plan::StreamKind kind);

  plan::Program& program_;
  std::int32_t moment_ = 0;
  std::map<plan::StreamKind, Line> lines_;
  std::map<std::int32_t, std::int32_t> over_at_;  // call -> the compute call that knows it to be over
};

}  // namespace plimsoll::lowering
