#include "ops/masks/rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/masks/all.h"

namespace plimsoll::ops {

namespace {

template <typename... Rules>
constexpr std::array<MaskRule, sizeof...(Rules)> mask_rows_of(MaskList<Rules...>) {
  std::array<MaskRule, sizeof...(Rules)> rows{mask_row_of<Rules>()...};
  for (std::size_t place = 0; place < rows.size(); ++place) rows[place].device_code = static_cast<int>(place);
  return rows;
}

constexpr auto kMaskRules = mask_rows_of(AllMasks{});

}  // namespace

std::span<const MaskRule> mask_rules() { return kMaskRules; }

const MaskRule* find_mask_rule(std::string_view name) {
  const auto found = std::find_if(kMaskRules.begin(), kMaskRules.end(), [&](const MaskRule& rule) { return rule.name == name; });
  return found == kMaskRules.end() ? nullptr : &*found;
}

std::string problem_of(const MaskPattern& pattern) {
  if (pattern.rule == nullptr) return {};
  for (std::size_t index = 0; index < pattern.rule->numbers.size(); ++index) {
    const MaskNumber& number = pattern.rule->numbers[index];
    if (pattern.numbers[index] < number.least)
      return fmt::format("{} of the mask {} is {}; expected at least {}", number.name, pattern.rule->name, pattern.numbers[index],
                         number.least);
  }
  return {};
}

}  // namespace plimsoll::ops
