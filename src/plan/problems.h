// What the verifiers of a plan share: a list of what was found, and the check that nothing lies where something else does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace plimsoll::plan {

class Report {
 public:
  template <typename... Args>
  void operator()(fmt::format_string<Args...> format, Args&&... args) {
    found.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::string> found;
};

// A stretch of memory that is in use from moment `first` to moment `last`.
struct Extent {
  std::uint32_t owner = 0;  // whose it is, as whoever checks counts them
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
};

// Reports a pair that shares a byte at a moment; `name_of` gives an owner's name.
void check_overlap(std::vector<Extent> extents, std::string_view where, const std::function<std::string(std::uint32_t)>& name_of,
                   Report& report);

}  // namespace plimsoll::plan
