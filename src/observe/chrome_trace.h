// Chrome trace JSON (chrome://tracing, Perfetto): complete events ("X") on named lanes, counters ("C") as graphs.
//
// The array form is written piece by piece and closed by finish(); readers accept a file that a crash left open. Times
// are printed in microseconds from the origin, to the nanosecond.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/sink.h"
#include "observe/span.h"

namespace plimsoll::observe {

class ChromeTrace {
 public:
  // `origin` is the clock's reading that is shown as zero.
  ChromeTrace(Sink sink, double origin);

  void name_process(std::int64_t process, std::string_view name);
  void name_thread(Lane lane, std::string_view name);  // threads are shown in the order of their numbers
  void write(const Span& span);
  void finish();

 private:
  void write_item(const base::Json& item);
  double microseconds(double seconds) const;

  Sink sink_;
  double origin_;
  bool first_ = true;
};

}  // namespace plimsoll::observe
