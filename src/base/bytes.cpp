#include "base/bytes.h"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace plimsoll::base {

std::string to_string(Bytes amount) {
  static constexpr std::array<std::string_view, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(amount.count) < 1024) return fmt::format("{} B", amount.count);
  double value = static_cast<double>(amount.count);
  std::string_view unit;
  for (std::string_view next : kUnits) {
    value /= 1024.0;
    unit = next;
    if (std::abs(value) < 1023.95) break;
  }
  const double magnitude = std::abs(value);
  const int decimals = magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, unit);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double scale;
  };
  static constexpr std::array<Unit, 11> kUnits{{{"", 1.0},
                                                {"B", 1.0},
                                                {"KB", 1e3},
                                                {"kB", 1e3},
                                                {"MB", 1e6},
                                                {"GB", 1e9},
                                                {"TB", 1e12},
                                                {"KiB", 0x1p10},
                                                {"MiB", 0x1p20},
                                                {"GiB", 0x1p30},
                                                {"TiB", 0x1p40}}};
  double value = 0.0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || !(value >= 0.0)) return std::nullopt;
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& candidate : kUnits) {
    if (candidate.name != unit) continue;
    const double count = value * candidate.scale;
    if (count > 9e18) return std::nullopt;
    return Bytes{static_cast<std::int64_t>(std::llround(count))};
  }
  return std::nullopt;
}

}  // namespace plimsoll::base
