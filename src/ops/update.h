// The update of a parameter by a rule (rule.h).
//
// Updates work in f32. A weight or state that is stored in bf16 is widened before and rounded at random after, up or down with the odds
// that make its mean the unrounded value; `split` gives a bf16 weight the lower half of its f32 bits (ops/forms).
//
// Where the host updates for a device, what the model computes with leaves at once, and nobody on the host reads it again: such a copy goes
// around the host's caches. `leaves` says so of a copy, which is written in place. With `sends` there is one result more, in memory of its
// own: the weight in that type, as a cast behind the update would make it, also in a step that is skipped. A weight that is sent is f32.
#pragma once

#include <optional>
#include <string>

#include "ops/attributes.h"
#include "ops/optim/rule.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

static_assert(kMostRuleSums == std::tuple_size_v<decltype(ParameterSums::sum)>);

PLIMSOLL_HOST_DEVICE inline RuleInputs rule_inputs(const RuleNumbers& numbers, double rate, double weight_decay,
                                                   const StepScalars& scalars) {
  const double learning_rate = times(static_cast<double>(scalars.learning_rate), rate);
  return {numbers, weight_decay, learning_rate, scalars.gradient_multiplier, scalars.updates + 1};
}

// (scalars, gradient, weight, states.., [low u16], [prelude], [copy]) -> (weight, states.., [low], [copy], [sent]), all but what is sent in
// place. prelude is what the rule knows of the whole parameter (prelude.h); copy is the weight in the element type the model computes with.
// Nothing is written when scalars.skip. It is printed by its rule's name: adamw_update(...).
struct Update {
  const UpdateRule* rule = nullptr;
  RuleNumbers numbers{};
  double rate = 1.0;  // of the parameter's group: times the step's learning rate
  double weight_decay = 0.0;
  bool copy = false;
  bool split = false;
  bool prelude = false;
  bool leaves = false;
  std::optional<base::DType> sends{};

  static constexpr std::string_view kName = "update";
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    for (std::size_t index = 0; self.rule != nullptr && index < self.rule->numbers.size(); ++index)
      visit(self.rule->numbers[index].name, self.numbers[index]);
    visit("rate", self.rate);
    visit("weight_decay", self.weight_decay);
    visit("copy", self.copy);
    visit("split", self.split);
    visit("prelude", self.prelude);
    visit("leaves", self.leaves);
    visit("sends", self.sends);
  }

  // With the rule's usual numbers.
  static Update by(const UpdateRule& rule) { return {.rule = &rule, .numbers = rule.usual()}; }
  // What attributes are left out of the printed form when they are equal to.
  Update plain() const { return rule == nullptr ? Update{} : by(*rule); }
  std::string printed_name() const { return rule == nullptr ? std::string(kName) : std::string(rule->name) + "_update"; }

  RuleInputs inputs(const StepScalars& scalars) const { return rule_inputs(numbers, rate, weight_decay, scalars); }
  std::size_t states() const { return rule->states.size(); }
  // Where in its results the lower halves of a split weight are.
  std::size_t low() const { return 1 + states(); }
  // What is written in place, but for the copy: the weight, its states, its lower halves.
  std::size_t kept() const { return 1 + states() + (split ? 1 : 0); }
  // Where among its operands they begin, and what its prelude made is.
  static constexpr std::size_t kFirstKept = 2;  // scalars and gradient are only read
  std::size_t prelude_operand() const { return kFirstKept + kept(); }

  bool operator==(const Update&) const = default;
};

}  // namespace plimsoll::ops
