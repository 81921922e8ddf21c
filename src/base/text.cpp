#include "base/text.h"

#include <algorithm>
#include <vector>

namespace plimsoll::base {

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: before, above, row (prefixes of a of lengths i-2, i-1, i).
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

namespace {

// The last number in a name, and 0 where there is none.
double number_in(std::string_view name) {
  const std::size_t last = name.find_last_of("0123456789");
  if (last == std::string_view::npos) return 0.0;
  const std::size_t before = name.find_last_not_of("0123456789", last);
  double number = 0.0;
  for (std::size_t at = before == std::string_view::npos ? 0 : before + 1; at <= last; ++at) number = 10.0 * number + (name[at] - '0');
  return number;
}

// How many times one is the other: who asks for llama-7b means llama-8b rather than llama-1b.
double apart(std::string_view a, std::string_view b) {
  const double one = number_in(a);
  const double other = number_in(b);
  return one > 0.0 && other > 0.0 ? std::max(one / other, other / one) : 1.0;
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  constexpr std::size_t kLongest = 64;  // nothing that long is a typing mistake, and the table grows with its square
  if (name.size() > kLongest) return {};
  const std::string wanted = lower(name);
  std::string_view best;
  std::size_t best_distance = kLongest;
  for (std::string_view candidate : candidates) {
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    const std::size_t allowed = std::max<std::size_t>(1, longer / 3);
    if (longer - shorter > allowed) continue;  // so many insertions are needed at least
    const std::size_t distance = edit_distance(wanted, lower(candidate));
    if (distance > allowed || distance > best_distance) continue;
    if (distance == best_distance && apart(name, candidate) >= apart(name, best)) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace plimsoll::base
