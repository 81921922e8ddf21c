#include "config/field.h"

#include <array>

#include "base/error.h"

namespace plimsoll::config {

namespace {

std::string expects(std::string_view what, const Range& range) {
  const bool has_min = std::isfinite(range.min);
  const bool has_max = std::isfinite(range.max);
  const auto number = [](double value) { return fmt::format("{:.15g}", value); };
  if (!has_min && !has_max) return std::string(what);
  if (!has_max) return fmt::format("{} {} {}", what, range.above_min ? ">" : ">=", number(range.min));
  if (!has_min) return fmt::format("{} {} {}", what, range.below_max ? "<" : "<=", number(range.max));
  if (!range.above_min && !range.below_max) return fmt::format("{} from {} to {}", what, number(range.min), number(range.max));
  return fmt::format("{} {} {} and {} {}", what, range.above_min ? ">" : ">=", number(range.min),
                     range.below_max ? "<" : "<=", number(range.max));
}

}  // namespace

std::string expects_integer(const Range& range) { return expects("an integer", range); }
std::string expects_number(const Range& range) { return expects("a number", range); }
std::string expects_choice(const std::vector<std::string>& choices) { return fmt::format("one of {}", fmt::join(choices, ", ")); }

base::Json bytes_to_json(base::Bytes amount) {
  struct Unit {
    std::string_view name;
    std::int64_t scale;
  };
  static constexpr std::array<Unit, 6> kUnits{{{"TiB", std::int64_t{1} << 40},
                                               {"GiB", std::int64_t{1} << 30},
                                               {"MiB", std::int64_t{1} << 20},
                                               {"GB", 1'000'000'000},
                                               {"MB", 1'000'000},
                                               {"KB", 1'000}}};
  for (const Unit& unit : kUnits) {
    if (amount.count == 0 || amount.count % unit.scale != 0) continue;
    std::string text = fmt::format("{}{}", amount.count / unit.scale, unit.name);
    if (base::parse_bytes(text) == amount) return text;  // not so beyond 2^53 units
  }
  return amount.count;
}

bool read_bytes(const base::Json& value, base::Bytes& amount) {
  if (value.is_integer() && value.as_integer() >= 0) {
    amount = {value.as_integer()};
    return true;
  }
  if (!value.is_string()) return false;
  const std::optional<base::Bytes> parsed = base::parse_bytes(value.as_string());
  if (parsed) amount = *parsed;
  return parsed.has_value();
}

void fail_value(const base::Json& value, std::string_view key, std::string_view expected) {
  base::bad_input("{}: found {} for \"{}\", expected {}", value.where(), value.describe(), key, expected);
}

}  // namespace plimsoll::config
