// Settings that a run gives but has no use for: accepted, since run files are varied by hand and by scripts, but not in silence.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/config.h"
#include "config/fields.h"
#include "ops/optim/rules.h"
#include "strategy/dimensions.h"

namespace plimsoll::config {

namespace {

struct Use {
  std::string_view key;    // of a field, or of a group of them
  std::string_view needs;  // ends "has no use without ..."
  bool (*met)(const Run& run);
};

bool falls(const Run& run) { return run.lr_schedule.type != LrScheduleType::constant && run.lr_schedule.type != LrScheduleType::points; }
const std::vector<Use>& uses() {
  static const std::vector<Use> table{
      {"lr_schedule.points", "\"lr_schedule.type\": \"points\"",
       [](const Run& run) { return run.lr_schedule.type == LrScheduleType::points; }},
      {"lr_schedule.min_ratio", "an \"lr_schedule.type\" that falls (linear, cosine, wsd)", falls},
      {"lr_schedule.end", "an \"lr_schedule.type\" that falls (linear, cosine, wsd)", falls},
      {"lr_schedule.decay", "\"lr_schedule.type\": \"wsd\"", [](const Run& run) { return run.lr_schedule.type == LrScheduleType::wsd; }},
      {"lr_schedule.warmup_shape", "\"lr_schedule.warmup\"", [](const Run& run) { return run.lr_schedule.warmup > 0; }},
      {"lr_schedule.warmup_from", "\"lr_schedule.warmup\"", [](const Run& run) { return run.lr_schedule.warmup > 0; }},
      {"optimizer.moments", "averages (\"optimizer.type\" other than \"sgd\")",
       [](const Run& run) { return !run.optimizer.rule->states.empty(); }},
      {"optimizer.master", "weights in bf16 (\"precision\" \"bf16\" or \"fp8\")",
       [](const Run& run) { return run.precision_auto || run.precision != model::Precision::f32; }},
      {"fp8.history", "\"precision\": \"fp8\"",
       [](const Run& run) { return run.precision_auto || run.precision == model::Precision::fp8; }},
      {"loss_scale", "\"precision\": \"fp16\"",
       [](const Run& run) { return run.precision_auto || run.precision == model::Precision::fp16; }},
      {"eval", "\"data.valid\"", [](const Run& run) { return !run.data.valid.empty() || run.eval.every == 0; }},  // never asks for nothing
      {"checkpoint.retry_seconds", "\"checkpoint.on_full_disk\": \"retry\"",
       [](const Run& run) { return run.checkpoint.on_full_disk == OnFullDisk::retry; }},
      {"communication.sums", "\"transport\": \"nccl\" (all others add by rank)",
       [](const Run& run) { return run.transport == Transport::nccl; }},
      {"communication.gradients", "several data ranks",
       [](const Run& run) { return run.strategy_auto || run.strategy.pipelines() * run.strategy.turn() > 1; }},
      {"communication.weights", "\"strategy.zero\": 3", [](const Run& run) { return run.strategy_auto || run.strategy.zero == 3; }},
      {"communication.activations", "several tensor or pipe ranks",
       [](const Run& run) { return run.strategy_auto || run.strategy.pipe > 1 || run.strategy.widest_tensor() > 1; }},
  };
  return table;
}

// What an answer of the strategy needs to mean anything, where it is not there; a strategy that is still open may become anything.
std::optional<std::string> lacking_answer(const Run& run, std::string_view key) {
  constexpr std::string_view kStrategy = "strategy.";
  if (run.strategy_auto || !key.starts_with(kStrategy)) return std::nullopt;
  const strategy::Dimension* dimension = strategy::find_dimension(key.substr(kStrategy.size()));
  if (dimension == nullptr || dimension->used == nullptr || dimension->used(run.strategy)) return std::nullopt;
  return std::string(dimension->needs);
}

bool concerns(const Use& use, std::string_view key) {
  return key == use.key || (key.size() > use.key.size() && key.starts_with(use.key) && key[use.key.size()] == '.');
}

// "an \"optimizer.type\" that has it (adam, adamw)" where the key is a setting of other update rules than the run's.
std::optional<std::string> lacking_rule(const Run& run, std::string_view key) {
  std::vector<std::string_view> having;
  for (const ops::UpdateRule& rule : ops::update_rules()) {
    const auto is_key = [&](const ops::RuleNumber& number) { return numbers_key(number.name) == key; };
    const std::span<const ops::RuleNumber> others = rule.otherwise.empty() ? rule.numbers : ops::update_rule(rule.otherwise).numbers;
    const bool has = std::any_of(rule.numbers.begin(), rule.numbers.end(), is_key) || std::any_of(others.begin(), others.end(), is_key);
    if (has && &rule == run.optimizer.rule) return std::nullopt;
    if (has) having.push_back(rule.name);
  }
  if (having.empty()) return std::nullopt;
  return fmt::format("an \"optimizer.type\" that has it ({})", fmt::join(having, ", "));
}

}  // namespace

std::string idle_settings(const Run& run) {
  static const Run plain;
  std::vector<std::string> parts;
  for (const Field& field : fields()) {
    if (!run.given(field.key) || field.write(run) == field.write(plain)) continue;
    const auto note = [&](std::string_view needs) {
      parts.push_back(
          fmt::format("{} = {} ({}) has no use without {}", field.key, base::write_json(field.write(run)), run.where(field.key), needs));
    };
    for (const Use& use : uses()) {
      if (concerns(use, field.key) && !use.met(run)) note(use.needs);
    }
    for (const auto lacking : {lacking_rule, lacking_answer}) {
      if (const std::optional<std::string> needs = lacking(run, field.key)) note(*needs);
    }
  }
  return parts.empty() ? "" : fmt::format("note: {}\n", fmt::join(parts, "; "));
}

}  // namespace plimsoll::config
