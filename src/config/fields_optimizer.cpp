// Settings of the update. Those of update rules are as the table of rules has them (ops/optim).
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/fields.h"
#include "ops/optim/rules.h"

namespace plimsoll::config {

namespace {

constexpr std::string_view kFirstBeta = "beta1";
constexpr std::string_view kSecondBeta = "beta2";

std::vector<const ops::UpdateRule*> rules_with(std::string_view number) {
  std::vector<const ops::UpdateRule*> found;
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    if (ops::goes_by(rule, number)) found.push_back(&rule);
  }
  return found;
}

const ops::RuleNumber& number_in(const ops::UpdateRule& rule, std::string_view name) {
  const int place = rule.place_of(name);
  return place < 0 ? number_in(ops::update_rule(rule.otherwise), name) : rule.numbers[static_cast<std::size_t>(place)];
}

Range range_of(const ops::RuleNumber& number) {
  Range range = number.below_one ? rate() : f32_from(number.least);
  range.min = number.least;
  return range;
}

// "1e-8", or "0.95; 0.99 for lion" where rules differ.
std::string usual_of(std::string_view name) {
  const std::vector<const ops::UpdateRule*> rules = rules_with(name);
  const double first = number_in(*rules.front(), name).usual;
  std::string text = fmt::format("{}", first);
  for (const ops::UpdateRule* rule : rules) {
    if (const double usual = number_in(*rule, name).usual; usual != first) text += fmt::format("; {} for {}", usual, rule->name);
  }
  return text;
}

std::vector<const ops::UpdateRule*> rules_that_decay_apart() {
  std::vector<const ops::UpdateRule*> found;
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    if (rule.decays_apart) found.push_back(&rule);
  }
  return found;
}

std::string names_of(const std::vector<const ops::UpdateRule*>& rules) {
  std::vector<std::string_view> names;
  for (const ops::UpdateRule* rule : rules) names.push_back(rule->name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Field type_field() {
  std::string about = "The update rule:";
  Field field{.key = "optimizer.type"};
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    field.choices.emplace_back(rule.name);
    about += fmt::format("{} `{}` ({})", field.choices.size() == 1 ? "" : ",", rule.name, rule.about);
  }
  field.about = about + ".";
  field.expects = expects_choice(field.choices);
  field.takes_text = true;
  field.read = [](const base::Json& value, Run& run) {
    const ops::UpdateRule* rule = value.is_string() ? ops::find_update_rule(value.as_string()) : nullptr;
    if (rule == nullptr) return false;
    run.optimizer.rule = rule;
    return true;
  };
  field.write = [](const Run& run) { return base::Json(std::string(run.optimizer.rule->name)); };
  return field;
}

Field rule_number_field(std::string_view name) {
  const std::vector<const ops::UpdateRule*> rules = rules_with(name);
  const ops::RuleNumber& number = number_in(*rules.front(), name);
  Field field{.key = fmt::format("optimizer.{}", name),
              .about = fmt::format("{} ({})", number.about.substr(0, number.about.size() - 1), names_of(rules)) + ".",
              .expects = number.whole ? fmt::format("a whole number >= {}", number.least) : expects_number(range_of(number))};
  if (const std::string usual = usual_of(name); usual.find(';') != std::string::npos) field.derived = usual;
  field.read = [range = range_of(number), whole = number.whole, name = std::string(name), key = field.key](const base::Json& value,
                                                                                                           Run& run) {
    if (!value.is_number() || !range.contains(value.as_double())) return false;
    if (whole && value.as_double() != std::floor(value.as_double())) return false;
    if (value.as_double() > range.ceiling) fail_value(value, key, fmt::format("at most {}", range.ceiling));
    run.optimizer.numbers[name] = value.as_double();
    return true;
  };
  field.write = [whole = number.whole, name = std::string(name)](const Run& run) {
    const double value = run.optimizer.number(name);
    return whole ? base::Json(static_cast<std::int64_t>(value)) : base::Json(value);
  };
  return field;
}

// Two settings in one.
Field betas_field() {
  Field field{.key = "optimizer.betas",
              .about = fmt::format("Decay rates of two averages ({}).", names_of(rules_with(kSecondBeta))),
              .expects = "two numbers >= 0 and < 1, such as [0.9, 0.95]",
              .derived = fmt::format("{} and {}", usual_of(kFirstBeta), usual_of(kSecondBeta))};
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_array() || value.size() != 2) return false;
    for (const base::Json& beta : value.as_array()) {
      if (!beta.is_number() || !rate().contains(beta.as_double())) return false;
    }
    run.optimizer.numbers[std::string(kFirstBeta)] = value.at(std::size_t{0}).as_double();
    run.optimizer.numbers[std::string(kSecondBeta)] = value.at(std::size_t{1}).as_double();
    return true;
  };
  field.write = [](const Run& run) { return base::Json::array({run.optimizer.number(kFirstBeta), run.optimizer.number(kSecondBeta)}); };
  return field;
}

bool read_group(const base::Json& value, model::ParameterGroup& group) {
  constexpr double kMostTimes = 1e6;
  if (!value.is_object()) return false;
  for (const auto& [key, offset, member] : value.as_object()) {
    if (key == "match") {
      const auto add = [&](const base::Json& pattern) {
        if (!pattern.is_string() || pattern.as_string().empty()) return false;
        group.match.push_back(pattern.as_string());
        return true;
      };
      if (member.is_string() ? !add(member) : !member.is_array()) return false;
      for (std::size_t index = 0; member.is_array() && index < member.size(); ++index) {
        if (!add(member.at(index))) return false;
      }
    } else if (key == "lr" || key == "weight_decay") {
      if (!member.is_number() || !between(0.0, kMostTimes).contains(member.as_double())) return false;
      (key == "lr" ? group.lr : group.weight_decay) = member.as_double();
      group.decays = group.decays || key == "weight_decay";
    } else {
      return false;
    }
  }
  return !group.match.empty();
}

Field groups_field() {
  Field field{.key = "optimizer.groups",
              .about =
                  "Parameters with factors of their own, by names or patterns with `*`: `lr` times the learning rate, `weight_decay` times "
                  "the weight decay (then also of parameters of one dimension). The last group that matches counts.",
              .expects = "an array of groups, such as [{\"match\": \"*.bias\", \"lr\": 2, \"weight_decay\": 0}]"};
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_array()) return false;
    std::vector<model::ParameterGroup> groups(value.size());
    for (std::size_t index = 0; index < groups.size(); ++index) {
      if (!read_group(value.at(index), groups[index])) return false;
    }
    run.optimizer.groups = std::move(groups);
    return true;
  };
  field.write = [](const Run& run) {
    base::Json list = base::Json::array();
    for (const model::ParameterGroup& group : run.optimizer.groups) {
      base::Json one = base::Json::object();
      base::Json patterns = base::Json::array();
      for (const std::string& pattern : group.match) patterns.push(pattern);
      one.set("match", patterns);
      one.set("lr", group.lr);
      if (group.decays) one.set("weight_decay", group.weight_decay);
      list.push(one);
    }
    return list;
  };
  return field;
}

std::vector<std::string_view> numbers_of_all_rules() {
  std::vector<std::string_view> names;
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    for (const ops::RuleNumber& number : rule.numbers) {
      if (std::find(names.begin(), names.end(), number.name) == names.end()) names.push_back(number.name);
    }
  }
  return names;
}

std::string usual_decays() {
  std::string text;
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    if (rule.usual_weight_decay != 0.0) text += fmt::format("{} for {}, ", rule.usual_weight_decay, rule.name);
  }
  return text + "else 0";
}

}  // namespace

std::string numbers_key(std::string_view number) {
  return number == kFirstBeta || number == kSecondBeta ? "optimizer.betas" : fmt::format("optimizer.{}", number);
}

std::vector<Field> optimizer_fields() {
  std::vector<Field> list{type_field(), number_field("optimizer.lr", PLIMSOLL_AT(lr), f32_from(0.0), "Peak learning rate."), betas_field()};
  for (const std::string_view name : numbers_of_all_rules()) {
    if (numbers_key(name) != "optimizer.betas") list.push_back(rule_number_field(name));
  }
  list.push_back(number_field("optimizer.weight_decay", PLIMSOLL_AT(optimizer.weight_decay), f32_from(0.0),
                              fmt::format("Decay of parameters of two or more dimensions: apart from the gradient for {}, added to it "
                                          "for the others.",
                                          names_of(rules_that_decay_apart())))
                     .derived_from(usual_decays()));
  list.push_back(groups_field());
  list.push_back(number_field("optimizer.clip", PLIMSOLL_AT(optimizer.clip), f32_from(0.0),
                              "Largest global norm of the gradient; 0 turns clipping off."));
  list.push_back(
      choice_field("optimizer.master", PLIMSOLL_AT(optimizer.master),
                   "What updates of bf16 weights work on: f32 copies; `split`, the same bits with the upper halves in the weights "
                   "themselves (Adam, 2 bytes less); `none`, the weights, rounded at random (4 bytes less)."));
  list.push_back(choice_field("optimizer.moments", PLIMSOLL_AT(optimizer.moments),
                              "Type of the optimizer's averages; bf16 ones are rounded at random and take half the bytes."));
  return list;
}

}  // namespace plimsoll::config
