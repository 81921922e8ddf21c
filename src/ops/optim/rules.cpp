#include "ops/optim/rules.h"

#include <algorithm>

#include "base/error.h"
#include "ops/optim/all.h"

namespace plimsoll::ops {

namespace {

constexpr std::array kRules{
    row_of<SgdRule>(),        row_of<MomentumRule>(), row_of<AdamRule<false>>(),
    row_of<AdamRule<true>>(), row_of<RmspropRule>(),  row_of<LionRule>(),
};

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

}  // namespace plimsoll::ops
