#include "model/training.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace plimsoll::model {

double Optimizer::number(std::string_view name) const {
  if (const auto given = numbers.find(name); given != numbers.end()) return given->second;
  const auto usual = [&](const ops::UpdateRule& one) -> std::optional<double> {
    const int place = one.place_of(name);
    if (place < 0) return std::nullopt;
    return one.numbers[static_cast<std::size_t>(place)].usual;
  };
  if (const std::optional<double> own = usual(*rule)) return *own;
  for (const ops::UpdateRule& other : ops::update_rules()) {
    if (const std::optional<double> found = usual(other)) return *found;
  }
  PLIMSOLL_CHECK(false, "no update rule has a setting {}", name);
}

ops::RuleNumbers Optimizer::all_numbers(const ops::UpdateRule& of) const {
  ops::RuleNumbers all = of.usual();
  for (std::size_t index = 0; index < of.numbers.size(); ++index) {
    if (const auto given = numbers.find(of.numbers[index].name); given != numbers.end()) all[index] = given->second;
  }
  return all;
}

bool Optimizer::operator==(const Optimizer& other) const {
  const auto same_number = [&](std::string_view name) { return number(name) == other.number(name); };
  const auto same_numbers = [&](const Optimizer& given) {
    return std::all_of(given.numbers.begin(), given.numbers.end(), [&](const auto& one) { return same_number(one.first); });
  };
  return rule == other.rule && weight_decay == other.weight_decay && clip == other.clip && master == other.master &&
         moments == other.moments && groups == other.groups && same_numbers(*this) && same_numbers(other);
}

}  // namespace plimsoll::model
