// Patterns that name parameters: "blocks.3.*", "*.bias".
#pragma once

#include <string_view>

namespace plimsoll::graph {

// '*' stands for any run of characters.
inline bool matches_name(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    for (std::size_t skip = 0; skip <= name.size(); ++skip) {
      if (matches_name(pattern.substr(1), name.substr(skip))) return true;
    }
    return false;
  }
  return !name.empty() && pattern.front() == name.front() && matches_name(pattern.substr(1), name.substr(1));
}

}  // namespace plimsoll::graph
