#include "collectives/compare.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::collectives {

void compare_calls(std::string_view group, std::span<const int> members, std::span<const Call> calls) {
  const auto fellows = [&](const Call& one) {
    return std::count_if(calls.begin(), calls.end(), [&](const Call& other) { return other.same_as(one); });
  };
  if (fellows(calls.front()) == static_cast<std::ptrdiff_t>(calls.size())) return;
  const auto fewer = [&](const Call& a, const Call& b) { return fellows(a) < fellows(b); };
  const auto usual = std::max_element(calls.begin(), calls.end(), fewer);
  std::vector<std::string> odd;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i].same_as(*usual)) odd.push_back(fmt::format("rank {} asks for {}", members[i], to_text(calls[i])));
  }
  base::fail(base::ErrorKind::other, "group '{}': {}, while rank {} asks for {}; all members must make the same calls in the same order",
             group, fmt::join(odd, ", "), members[static_cast<std::size_t>(usual - calls.begin())], to_text(*usual));
}

void compare_counts(std::string_view group, std::span<const int> members, const Call& call, const PinnedCounts& counts) {
  const bool exchange = call.operation == Operation::all_to_all;
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t j = 0; j < members.size(); ++j) {
      const std::int64_t found = counts.given(static_cast<int>(i))[j];
      const std::int64_t expected = exchange ? counts.wanted(static_cast<int>(j))[i] : counts.given(0)[j];
      if (found == expected) continue;
      const std::string other =
          exchange ? fmt::format("rank {} expects {}", members[j], expected) : fmt::format("for rank {} {}", members[0], expected);
      base::fail(base::ErrorKind::other, "group '{}', {}: the part of rank {} has {} elements for rank {}, but {}", group, to_text(call),
                 members[j], found, members[i], other);
    }
  }
}

}  // namespace plimsoll::collectives
