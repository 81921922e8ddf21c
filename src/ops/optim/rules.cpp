#include "ops/optim/rules.h"

#include <algorithm>

#include "base/error.h"
#include "ops/optim/all.h"

namespace plimsoll::ops {

namespace {

template <typename... Rules>
constexpr std::array<UpdateRule, sizeof...(Rules)> rows_of(RuleList<Rules...>) {
  return {row_of<Rules>()...};
}

constexpr auto kRules = rows_of(AllRules{});

}  // namespace

std::span<const UpdateRule> update_rules() { return kRules; }

const UpdateRule* find_update_rule(std::string_view name) {
  const auto found = std::find_if(kRules.begin(), kRules.end(), [&](const UpdateRule& rule) { return rule.name == name; });
  return found == kRules.end() ? nullptr : &*found;
}

const UpdateRule& update_rule(std::string_view name) {
  const UpdateRule* rule = find_update_rule(name);
  PLIMSOLL_CHECK(rule != nullptr, "there is no update rule {}", name);
  return *rule;
}

bool goes_by(const UpdateRule& rule, std::string_view number) {
  return rule.place_of(number) >= 0 || (!rule.otherwise.empty() && update_rule(rule.otherwise).place_of(number) >= 0);
}

}  // namespace plimsoll::ops
