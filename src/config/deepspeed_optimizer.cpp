// DeepSpeed's optimizer and learning-rate scheduler.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "config/deepspeed.h"
#include "config/fields.h"
#include "ops/optim/rules.h"

namespace plimsoll::config {

namespace {

using base::Json;

constexpr std::int64_t kLongestCycle = 100'000'000'000;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_one_bit(const std::string& name) { return name == "onebitadam" || name == "zerooneadam" || name == "onebitlamb"; }

// The rule that DeepSpeed calls so; nullptr: there is none here.
const ops::UpdateRule* rule_of(const std::string& name) {
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    for (const std::string_view known : rule.deepspeed) {
      if (lower(std::string(known)) == name) return &rule;
    }
  }
  return nullptr;
}

std::vector<std::string_view> known_types() {
  std::vector<std::string_view> names;
  for (const ops::UpdateRule& rule : ops::update_rules()) names.insert(names.end(), rule.deepspeed.begin(), rule.deepspeed.end());
  return names;
}

// A rule of the run file's that DeepSpeed has too, with other settings.
std::string own_rule(const Json& type) {
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    if (rule.name == lower(type.as_string()))
      return fmt::format("; leave the block out for \"optimizer.type\": \"{}\" of the run file, whose settings differ", rule.name);
  }
  return "";
}

bool is_scheduler(const std::string& name) {
  return name == "warmuplr" || name == "warmupdecaylr" || name == "warmupcosinelr" || name == "onecycle" || name == "lrrangetest";
}

// The type that a block names; nullptr where it is left open or no text, which others tell of.
const Json* type_in(const Json& document, std::string_view block) {
  const Json* found = document.is_object() ? document.find(block) : nullptr;
  const Json* type = found != nullptr && found->is_object() ? found->find("type") : nullptr;
  return type != nullptr && type->is_string() && type->as_string() != "auto" ? type : nullptr;
}

}  // namespace

void DeepSpeedTranslation::refuse_foreign_types(const Json& document) {
  const auto refuse = [&](std::string_view block, const Json& type, std::string_view expected) {
    foreign_.insert(std::string(block));
    problems_.attempt([&] {
      base::bad_input("{}: found {} for \"{}.type\", which does not exist here; expected {}", type.where(), type.describe(), block,
                      expected);
    });
  };
  const Json* rule = type_in(document, "optimizer");
  if (rule != nullptr && rule_of(lower(rule->as_string())) == nullptr)
    refuse("optimizer", *rule, fmt::format("an update rule that does: {}{}", fmt::join(known_types(), ", "), own_rule(*rule)));
  const Json* schedule = type_in(document, "scheduler");
  if (schedule != nullptr && !is_scheduler(lower(schedule->as_string())))
    refuse("scheduler", *schedule, "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle or LRRangeTest");
}

void DeepSpeedTranslation::optimizer_params(const ops::UpdateRule& rule) {
  const auto take = [&](std::string_view name, std::string_view setting, const Json& otherwise) {
    const std::string path = fmt::format("optimizer.params.{}", name);
    if (const Json* value = given(path)) return assign(setting, *value, path);
    assume(setting, otherwise, path);
  };
  take("lr", "optimizer.lr", rule.peer_lr);
  take("weight_decay", "optimizer.weight_decay", 0.0);
  for (const ops::RuleNumber& number : rule.numbers) {
    const std::string setting = numbers_key(number.name);
    if (setting != "optimizer.betas") {
      take(number.name, setting, number.peer_usual());
    } else if (number.name == "beta2") {
      take("betas", setting, Json::array({rule.numbers[0].peer_usual(), number.peer_usual()}));
    }
  }
  const Json* norm = given("optimizer.params.max_grad_norm");
  if (norm != nullptr && given("gradient_clipping") == nullptr) assign("optimizer.clip", *norm, "optimizer.params.max_grad_norm");
}

void DeepSpeedTranslation::optimizer() {
  const Json* type = given("optimizer.type");
  if (type == nullptr) {  // parameters of an optimizer that the caller chooses
    if (const Json* lr = given("optimizer.params.lr")) assign("optimizer.lr", *lr, "optimizer.params.lr");
    return;
  }
  const std::string name = lower(type->as_string());
  std::string_view rule = rule_of(name)->name;
  if (rule == "adamw" && name != "adamw" && !is_one_bit(name) && !flag("optimizer.params.adam_w_mode", true)) rule = "adam";
  if (rule == "sgd" && number("optimizer.params.momentum", 0.0) > 0.0) rule = "momentum";
  assign("optimizer.type", std::string(rule), "optimizer.type");
  if (is_one_bit(name))
    note("optimizer.type",
         fmt::format("{}: gradients are sent whole instead of as single bits, and its averages are corrected for their start", rule), true);
  optimizer_params(ops::update_rule(rule));
}

void DeepSpeedTranslation::peak_rate(const Json& value, std::string_view path) {
  assign("optimizer.lr", value, path);
  note("optimizer.params.lr", fmt::format("not used: {} sets the rate", path), false);
}

// WarmupLR rises to the optimizer's rate, WarmupDecayLR to a default of its own. The caller's rate comes before both.
void DeepSpeedTranslation::usual_decay_peak() {
  const OriginKind kind = run_.origin("optimizer.lr").kind;
  if (left_open_.contains("scheduler.params.warmup_max_lr") || kind == OriginKind::file || kind == OriginKind::set) return;
  run_.lr = 1e-3;
  run_.origins["optimizer.lr"] = {.kind = OriginKind::deepspeed, .text = "DeepSpeed's default of WarmupDecayLR's warmup_max_lr"};
  note("optimizer.params.lr", "not used: WarmupDecayLR rises to its warmup_max_lr, which is 0.001 unless given", true);
}

void DeepSpeedTranslation::warmup(std::string_view type) {
  const std::string prefix = "scheduler.params.";
  const Json* steps = given(prefix + "warmup_num_steps");
  if (steps != nullptr) {
    assign("lr_schedule.warmup", *steps, prefix + "warmup_num_steps");
  } else {
    assume("lr_schedule.warmup", 1000, prefix + "warmup_num_steps");
  }
  if (const Json* shape = given(prefix + "warmup_type")) {
    if (shape->as_string() != "log" && shape->as_string() != "linear") fail_value(*shape, prefix + "warmup_type", "log or linear");
    assign("lr_schedule.warmup_shape", *shape, prefix + "warmup_type");
  } else {
    assume("lr_schedule.warmup_shape", "log", prefix + "warmup_type");
  }
  if (type == "warmupcosinelr") {
    if (const Json* from = given(prefix + "warmup_min_ratio")) assign("lr_schedule.warmup_from", *from, prefix + "warmup_min_ratio");
    if (const Json* ratio = given(prefix + "cos_min_ratio")) {
      assign("lr_schedule.min_ratio", *ratio, prefix + "cos_min_ratio");
    } else {
      assume("lr_schedule.min_ratio", 1e-4, prefix + "cos_min_ratio");
    }
    return;
  }
  const bool decay = type == "warmupdecaylr";
  if (const Json* most = given(prefix + "warmup_max_lr")) {
    peak_rate(*most, prefix + "warmup_max_lr");
  } else if (decay) {
    usual_decay_peak();
  }
  const double least = number(prefix + "warmup_min_lr", 0.0);
  if (least == 0.0) return note(prefix + "warmup_min_lr", "lr_schedule.warmup_from", false);
  const Json& found = *given(prefix + "warmup_min_lr");
  if (least < 0.0 || least > run_.lr) fail_value(found, prefix + "warmup_min_lr", fmt::format("0 to the learning rate, {}", run_.lr));
  assign("lr_schedule.warmup_from", least / run_.lr, prefix + "warmup_min_lr");
  if (decay) assign("lr_schedule.min_ratio", least / run_.lr, prefix + "warmup_min_lr");  // it falls to where it rose from
}

void DeepSpeedTranslation::cycle() {
  const std::string prefix = "scheduler.params.";
  const Json* most = given(prefix + "cycle_max_lr");
  const Json* least = given(prefix + "cycle_min_lr");
  if (most == nullptr || least == nullptr || !(most->as_double() > 0.0) || !between(0.0, most->as_double()).contains(least->as_double())) {
    base::bad_input(
        "{}: found no usable \"cycle_min_lr\" and \"cycle_max_lr\" for OneCycle, expected 0 <= cycle_min_lr <= cycle_max_lr, "
        "and cycle_max_lr > 0",
        given("scheduler.type")->where());
  }
  const std::int64_t first = std::clamp<std::int64_t>(count(prefix + "cycle_first_step_size", 2000), 1, kLongestCycle);
  const std::int64_t second = std::clamp<std::int64_t>(count(prefix + "cycle_second_step_size", first), 1, kLongestCycle);
  peak_rate(*most, prefix + "cycle_max_lr");
  const double low = least->as_double() / most->as_double();
  assign("lr_schedule.points", Json::array({Json::array({0, low}), Json::array({first, 1.0}), Json::array({first + second, low})}),
         "scheduler.type");
  if (flag(prefix + "cycle_momentum", true)) note("scheduler.type", "lr_schedule.points; Adam's first beta is not cycled", true);
}

void DeepSpeedTranslation::range_test() {
  const std::string prefix = "scheduler.params.";
  const double least = number(prefix + "lr_range_test_min_lr", 1e-3);
  const double slope = number(prefix + "lr_range_test_step_rate", 1.0) /
                       static_cast<double>(std::max<std::int64_t>(1, count(prefix + "lr_range_test_step_size", 2000)));
  if (!(least > 0.0) || !(slope >= 0.0)) fail_value(*given("scheduler.type"), "scheduler.type", "LRRangeTest to start above 0 and to rise");
  const std::int64_t last = std::max<std::int64_t>(1, run_.steps);
  const double most = least * (1.0 + slope * static_cast<double>(last));
  peak_rate(most, "scheduler.type");
  assign("lr_schedule.points", Json::array({Json::array({0, least / most}), Json::array({last, 1.0})}), "scheduler.type");
}

void DeepSpeedTranslation::scheduler() {
  const Json* type = given("scheduler.type");
  if (type == nullptr) return;
  const std::string name = lower(type->as_string());
  const bool decay = name == "warmupdecaylr";
  const bool cosine = name == "warmupcosinelr";
  if (name == "onecycle" || name == "lrrangetest") {
    assign("lr_schedule.type", "points", "scheduler.type");
    return name == "onecycle" ? cycle() : range_test();
  }
  assign("lr_schedule.type", decay ? "linear" : cosine ? "cosine" : "constant", "scheduler.type");
  warmup(name);
  const std::string_view total = "scheduler.params.total_num_steps";
  if (given(total) != nullptr && (decay || cosine)) assign("lr_schedule.end", *given(total), total);
  if (given(total) != nullptr && !decay && !cosine) note(total, "not used: WarmupLR never falls", false);
}

}  // namespace plimsoll::config
