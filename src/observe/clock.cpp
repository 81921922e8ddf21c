#include "observe/clock.h"

#include <chrono>

namespace plimsoll::observe {

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double SystemClock::seconds() const { return seconds_now(); }

double SystemClock::unix_seconds() const {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace plimsoll::observe
