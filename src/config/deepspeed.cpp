#include "config/deepspeed.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/deepspeed_keys.h"
#include "config/deepspeed_values.h"
#include "config/fields.h"

namespace plimsoll::config {

namespace {

using base::Json;
using base::JsonMember;

}  // namespace

DeepSpeedTranslation::DeepSpeedTranslation(const Json& document, Run& run, Problems& problems) : run_(run), problems_(problems) {
  refuse_foreign_types(document);
  walk(document, "");
}

void DeepSpeedTranslation::walk(const Json& object, const std::string& group) {
  for (const JsonMember& member : object.as_object()) problems_.attempt([&] { visit(member, group); });
}

void DeepSpeedTranslation::visit(const JsonMember& member, const std::string& group) {
  const std::string written = group.empty() ? member.key : fmt::format("{}.{}", group, member.key);
  const std::string path = canonical_deepspeed_path(written);
  if (foreign_.contains(path)) return;
  if (find_deepspeed_key(path) != nullptr) {
    take(member.value, path, written);
  } else if (path == "zero_optimization" && member.value.is_bool()) {
    values_[path] = &member.value;
    run_.deepspeed.keys.push_back({written, member.value.describe(), member.value.where(), "strategy.zero", false});
  } else if (is_deepspeed_group(path)) {
    if (is_auto(member.value)) return;
    const bool switched = find_deepspeed_key(path + ".enabled") != nullptr;
    if (!member.value.is_object()) fail_value(member.value, written, switched ? "an object such as {\"enabled\": true}" : "an object");
    walk(member.value, path);
  } else {
    unknown(member, group, written);
  }
}

void DeepSpeedTranslation::take(const Json& value, const std::string& path, const std::string& written) {
  const DeepSpeedKey& key = *find_deepspeed_key(path);
  DeepSpeedOutcome outcome{written, value.describe(), value.where(), std::string(key.text), false};
  if (is_auto(value)) {
    outcome.outcome = "left to the run file";
    left_open_.insert(path);
  } else {
    std::optional<Json> other = converted(value, key.takes);
    const Json& meant = other ? converted_.emplace_back(other->placed_as(value)) : value;
    if (!fits(meant, key.takes)) fail_value(value, written, fmt::format("{} or \"auto\"", name_of(key.takes)));
    if (values_.contains(path)) base::bad_input("{}: found the key \"{}\" twice, under two spellings; expected one", value.where(), path);
    values_[path] = &meant;
    const bool usual = is_usual(meant, key);
    if (key.effect == Effect::refused && !usual) {
      base::bad_input("{}: found {} for \"{}\", which would change what is trained and does not exist here; {}", value.where(),
                      value.describe(), written, key.text);
    }
    outcome.differs = key.effect == Effect::missing && !usual;
  }
  run_.deepspeed.keys.push_back(std::move(outcome));
}

void DeepSpeedTranslation::unknown(const JsonMember& member, const std::string& group, const std::string& key) {
  constexpr std::size_t kMostWords = 12;   // in a message
  constexpr std::size_t kMostKeys = 2000;  // each is looked for among the known ones, and its place in the text
  if (run_.deepspeed.keys.size() >= kMostKeys)
    base::bad_input("{}: found more than {} keys, expected a configuration of DeepSpeed", member.value.where(), kMostKeys);
  const std::string quoted = base::quote_json(key);  // a key may hold line ends
  const std::string written = quoted.substr(1, quoted.size() - 2);
  const std::vector<std::string> words = deepspeed_words_below(group);
  std::string meant = deepspeed_path_of_word(member.key);  // the right word in the wrong place
  if (meant.empty()) meant = base::nearest_name(member.key, std::vector<std::string_view>(words.begin(), words.end()));
  const std::string hint = meant.empty() ? "" : fmt::format("did you mean \"{}\"?", meant);
  if (is_strict_deepspeed_group(group)) {
    base::bad_input("{}: found the unknown key \"{}\", {}", member.value.where(), written,
                    !hint.empty()               ? hint
                    : words.size() > kMostWords ? fmt::format("expected one that docs/deepspeed.md lists below \"{}\"", group)
                                                : fmt::format("expected one of {}", fmt::join(words, ", ")));
  }
  run_.deepspeed.keys.push_back({written, member.value.describe(), member.value.where(),
                                 fmt::format("DeepSpeed knows no such key, so it is passed over{}{}", hint.empty() ? "" : "; ", hint),
                                 true});
}

const Json* DeepSpeedTranslation::given(std::string_view path) const {
  const auto found = values_.find(path);
  return found == values_.end() ? nullptr : found->second;
}

bool DeepSpeedTranslation::flag(std::string_view path, bool otherwise) const {
  const Json* value = given(path);
  return value == nullptr ? otherwise : value->as_bool();
}

double DeepSpeedTranslation::number(std::string_view path, double otherwise) const {
  const Json* value = given(path);
  return value == nullptr ? otherwise : value->as_double();
}

std::int64_t DeepSpeedTranslation::count(std::string_view path, std::int64_t otherwise) const {
  const Json* value = given(path);
  return value == nullptr ? otherwise : value->as_integer();
}

void DeepSpeedTranslation::note(std::string_view path, std::string outcome, bool differs) {
  for (DeepSpeedOutcome& key : run_.deepspeed.keys) {
    if (canonical_deepspeed_path(key.key) != path) continue;
    key.outcome = std::move(outcome);
    key.differs = differs;
    return;
  }
}

void DeepSpeedTranslation::read(std::string_view setting, const Json& value, const Json& found, std::string_view path) {
  const Field& field = *find_field(setting);
  if (!field.read(value, run_)) fail_value(found, path, field.expects);
  run_.origins[field.key] = {.kind = OriginKind::deepspeed, .text = fmt::format("{} {}", found.where(), path)};
}

void DeepSpeedTranslation::assign(std::string_view setting, const Json& value, std::string_view path) {
  if (setting.starts_with("strategy.") && run_.strategy_auto) {
    return note(path, "the planner chooses the strategy, since \"strategy\" is \"auto\"", true);
  }
  if (run_.origin(setting).kind == OriginKind::set) return note(path, fmt::format("{} of {}", setting, run_.origin(setting).text), false);
  problems_.attempt([&] { agree_or_read(setting, value, path); });
}

void DeepSpeedTranslation::agree_or_read(std::string_view setting, const Json& value, std::string_view path) {
  const Json& found = *given(path);
  if (run_.origin(setting).kind == OriginKind::file) {
    const Field& field = *find_field(setting);
    const Json there = field.write(run_);
    Run other;
    if (!field.read(value, other)) fail_value(found, path, field.expects);
    if (field.write(other) == there) return;
    base::bad_input("{}: found {} for \"{}\", which is {} {}, but {} says {}; expected them to agree: remove one", found.where(),
                    found.describe(), path, setting, field.write(other).describe(), run_.where(setting), there.describe());
  }
  read(setting, value, found, path);
}

void DeepSpeedTranslation::assume(std::string_view setting, const Json& value, std::string_view path) {
  if (!left_open_.contains(path)) derive(setting, value, "DeepSpeed's default");
}

void DeepSpeedTranslation::derive(std::string_view setting, const Json& value, std::string_view why) {
  if (run_.given(setting) || (setting.starts_with("strategy.") && run_.strategy_auto)) return;
  find_field(setting)->read(value, run_);
  run_.origins[std::string(setting)] = {.kind = OriginKind::deepspeed, .text = std::string(why)};
}

void DeepSpeedTranslation::precision() {
  const bool fp16 = flag("fp16.enabled");
  const bool bf16 = flag("bf16.enabled");
  if (fp16 && bf16) {
    base::bad_input("{}: found \"fp16.enabled\" and \"bf16.enabled\" ({}) both true, expected one of them", given("fp16.enabled")->where(),
                    given("bf16.enabled")->where());
  }
  if (fp16) return assign("precision", "fp16", "fp16.enabled");
  if (bf16) {
    if (flag("bf16.bf16_master_weights_and_grads")) assign("optimizer.master", "none", "bf16.bf16_master_weights_and_grads");
    if (flag("bf16.bf16_optimizer_states")) assign("optimizer.moments", "bf16", "bf16.bf16_optimizer_states");
    return assign("precision", "bf16", "bf16.enabled");
  }
  if (flag("torch_autocast.enabled")) {
    const Json* dtype = given("torch_autocast.dtype");
    const std::string name = dtype == nullptr ? "bfloat16" : dtype->as_string();
    const bool half = name == "float16" || name == "torch.float16" || name == "fp16" || name == "half";
    const bool brain = name == "bfloat16" || name == "torch.bfloat16" || name == "bf16";
    if (!half && !brain) fail_value(*dtype, "torch_autocast.dtype", "bfloat16 or float16");
    return assign("precision", half ? "fp16" : "bf16", "torch_autocast.enabled");
  }
  if (flag("amp.enabled")) assign("precision", "fp16", "amp.enabled");
}

void DeepSpeedTranslation::loss_scale() {
  const double fixed = number("fp16.loss_scale", 0.0);
  if (fixed > 0.0) {
    assign("loss_scale.initial", fixed, "fp16.loss_scale");
    assign("loss_scale.window", 0, "fp16.loss_scale");
    if (fixed < run_.loss_scale.minimum) derive("loss_scale.min", fixed, "derived: a fixed loss scale");
    for (std::string_view path : {"fp16.initial_scale_power", "fp16.loss_scale_window", "fp16.min_loss_scale", "fp16.hysteresis"})
      note(path, "not used: fp16.loss_scale fixes the scale", false);
    return;
  }
  if (const Json* power = given("fp16.initial_scale_power")) {
    if (!between(-126, 127).contains(power->as_double())) fail_value(*power, "fp16.initial_scale_power", "a power of two from -126 to 127");
    assign("loss_scale.initial", std::exp2(power->as_double()), "fp16.initial_scale_power");
  }
  if (const Json* window = given("fp16.loss_scale_window")) assign("loss_scale.window", *window, "fp16.loss_scale_window");
  if (const Json* minimum = given("fp16.min_loss_scale")) {
    // 0 is written by people who want no lower limit.
    if (minimum->as_double() == 0.0) {
      assign("loss_scale.min", std::exp2(-24), "fp16.min_loss_scale");
    } else {
      assign("loss_scale.min", *minimum, "fp16.min_loss_scale");
    }
  }
  if (const Json* hysteresis = given("fp16.hysteresis")) assign("loss_scale.hysteresis", *hysteresis, "fp16.hysteresis");
}

void DeepSpeedTranslation::activations() {
  const Json* checkpoints = given("activation_checkpointing.number_checkpoints");
  const bool some = checkpoints != nullptr && checkpoints->is_number() && checkpoints->as_double() > 0.0;
  constexpr std::string_view kBlocks = "activation_checkpointing.number_checkpoints";
  if (checkpoints != nullptr && !some) note(kBlocks, "none: nothing is computed again", false);
  const bool to_host = flag("activation_checkpointing.cpu_checkpointing");
  constexpr std::string_view kSplit = "activation_checkpointing.partition_activations";
  const bool split = flag(kSplit);
  if (to_host) assign("strategy.offload.activations", "host", "activation_checkpointing.cpu_checkpointing");
  if (some) assign("strategy.recompute", "full", kBlocks);
  if (some) note(kBlocks, "strategy.recompute: a checkpoint at every block", false);
  if (!some && to_host) derive("strategy.recompute", "full", "derived: activation_checkpointing.cpu_checkpointing");
  if (split && !some && !to_host) assign("strategy.recompute", "full", kSplit);
  if (split) split_activations(kSplit);
}

// Between the ranks that have the same of them.
void DeepSpeedTranslation::split_activations(std::string_view path) {
  const strategy::Strategy& strategy = run_.strategy;
  if (!run_.strategy_auto && std::max(strategy.tensor, strategy.widest_tensor()) == 1) {
    return note(path, "strategy.recompute; the one tensor rank keeps its activations whole, as in DeepSpeed", false);
  }
  if (strategy.sequence_parallel) {
    return note(path, "strategy.recompute; with strategy.sequence_parallel each tensor rank keeps only its own rows anyway", false);
  }
  assign("strategy.split_activations", true, path);
}

void DeepSpeedTranslation::degrees() {
  for (std::string_view path : {"tensor_parallel.autotp_size", "tensor_parallel.tp_size"}) {
    if (count(path, 0) > 0) assign("strategy.tensor", *given(path), path);
  }
  const Json* stages = given("pipeline.stages");
  if (stages != nullptr && stages->is_integer()) assign("strategy.pipe", *stages, "pipeline.stages");
  if (const Json* rows = given("pipeline.pipe_partitioned")) assign("strategy.scatter_boundaries", *rows, "pipeline.pipe_partitioned");
}

void DeepSpeedTranslation::translate() {
  // Relations between keys are not looked at while one of them is missing for being wrong.
  const bool sound = problems_.size() == 0;
  const auto part = [&](void (DeepSpeedTranslation::*translate_part)()) { problems_.attempt([&] { (this->*translate_part)(); }); };
  part(&DeepSpeedTranslation::precision);
  part(&DeepSpeedTranslation::loss_scale);
  part(&DeepSpeedTranslation::optimizer);
  if (sound) part(&DeepSpeedTranslation::scheduler);
  if (const Json* clip = given("gradient_clipping")) assign("optimizer.clip", *clip, "gradient_clipping");
  part(&DeepSpeedTranslation::degrees);
  if (sound) part(&DeepSpeedTranslation::batch);  // may say how many data ranks there are
  part(&DeepSpeedTranslation::zero);
  part(&DeepSpeedTranslation::activations);
}

Json take_deepspeed_keys(Json& document) {
  Json taken = Json::object();
  base::JsonObject rest;
  const auto is_theirs = [](const JsonMember& member) {
    if (is_deepspeed_top_key(member.key)) return true;
    if (!member.value.is_object()) return false;
    if (member.key == "optimizer") {
      const Json* type = member.value.find("type");
      const bool capital = type != nullptr && type->is_string() && !type->as_string().empty() && std::isupper(type->as_string()[0]) != 0;
      return capital || member.value.find("params") != nullptr;
    }
    if (member.key != "checkpoint") return false;
    const base::JsonObject& inside = member.value.as_object();
    return std::any_of(inside.begin(), inside.end(), [](const JsonMember& key) {
      return is_deepspeed_group("checkpoint." + key.key) || find_deepspeed_key("checkpoint." + key.key) != nullptr;
    });
  };
  for (const JsonMember& member : document.as_object()) {
    if (member.key == "deepspeed" && member.value.is_object()) {
      for (const JsonMember& inner : member.value.as_object()) {
        if (taken.find(inner.key) != nullptr)
          base::bad_input("{}: found \"{}\" a second time, expected it once", inner.value.where(), inner.key);
        taken.set(inner.key, inner.value);
      }
    } else if (is_theirs(member)) {
      if (taken.find(member.key) != nullptr)
        base::bad_input("{}: found \"{}\" a second time, expected it once", member.value.where(), member.key);
      taken.set(member.key, member.value);
    } else {
      rest.add(member.key, member.value, member.key_offset);
    }
  }
  if (taken.size() > 0) document.members() = std::move(rest);
  return taken;
}

}  // namespace plimsoll::config
