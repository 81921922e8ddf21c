#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace plimsoll::base {

void stop_on_broken_invariant(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "plimsoll: broken invariant at %s:%d: %s: %s\n", file, line, condition, message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace plimsoll::base
