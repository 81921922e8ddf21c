#include "config/derive.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include <fmt/format.h>

#include "base/error.h"
#include "config/choices.h"
#include "config/config.h"
#include "config/fields.h"
#include "config/problems.h"
#include "families/families.h"

namespace plimsoll::config {

namespace {

// Puts a derived value in place unless the user gave one.
template <typename T>
void derive_value(Run& run, std::string_view key, T& place, const T& value, std::string_view how) {
  if (run.given(key)) return;
  place = value;
  run.origins[std::string(key)] = {.kind = OriginKind::derived, .text = fmt::format("derived: {}", how)};
}

// The divisors of `number` next to `wanted`, from below and from above ("6 or 8"); one of them at the ends.
std::string nearest_divisors(std::int64_t number, std::int64_t wanted) {
  std::int64_t below = 1;
  std::int64_t above = number;
  const auto consider = [&](std::int64_t divisor) {
    if (divisor <= wanted) below = std::max(below, divisor);
    if (divisor >= wanted) above = std::min(above, divisor);
  };
  for (std::int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    consider(divisor);
    consider(number / divisor);
  }
  return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
}

void derive_head_dim(Run& run) {
  model::Model& model = run.model;
  if (run.given("model.head_dim") || !(run.given("model.width") || run.given("model.heads"))) return;
  if (model.width % model.heads != 0) {
    base::bad_input("{}: found {} heads for a width of {}, which is not a multiple of it; expected {} heads, or a \"head_dim\"",
                    run.where(run.given("model.heads") ? "model.heads" : "model.width"), model.heads, model.width,
                    nearest_divisors(model.width, model.heads));
  }
  derive_value(run, "model.head_dim", model.head_dim, model.width / model.heads, "width / heads");
}

// What the family works out of settings that were given.
void derive_by_family(Run& run, const families::Derived& derived) {
  const std::string key = fmt::format("model.{}", derived.key);
  const auto given = [&](std::string_view from) { return run.given(fmt::format("model.{}", from)); };
  if (run.given(key) || (!derived.in_presets && !run.preset.empty())) return;
  if (std::none_of(derived.from.begin(), derived.from.end(), given)) return;
  find_field(key)->read(derived.value(run.model), run);
  run.origins[key] = {.kind = OriginKind::derived, .text = fmt::format("derived: {}", derived.how)};
}

void derive_model(Run& run) {
  if (run.model.family->has("head_dim")) derive_head_dim(run);
  for (const families::Derived& derived : run.model.family->derived) derive_by_family(run, derived);
}

void derive_strategy(Run& run) {
  strategy::Strategy& strategy = run.strategy;
  if (strategy.partition != strategy::StagePartition::listed) return;
  for (strategy::Stage& stage : strategy.stages) {
    if (stage.data == 0) stage.data = strategy.data;
    if (stage.tensor == 0) stage.tensor = strategy.tensor;
  }
  const auto stages = static_cast<std::int64_t>(strategy.stages.size());
  if (stages % strategy.chunks == 0) {
    derive_value(run, "strategy.pipe", strategy.pipe, stages / strategy.chunks, "listed stages / chunks");
  }
}

// Between flushes nothing can be saved or evaluated. Whoever does not say when gets it at the next one.
void derive_rounds(Run& run) {
  const std::int64_t round = run.strategy.flush_every;
  if (run.strategy_auto || round == 1) return;
  const auto whole = [&](std::int64_t every) { return (every + round - 1) / round * round; };
  constexpr std::string_view kHow = "a multiple of strategy.flush_every";
  derive_value(run, "eval.every", run.eval.every, whole(run.eval.every), kHow);
  derive_value(run, "checkpoint.every", run.checkpoint.every, whole(run.checkpoint.every), kHow);
}

// For a rule between several settings: the place of the first that the user gave.
std::string where_first(const Run& run, std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) {
    if (run.given(key)) return run.where(key);
  }
  return run.name;
}

// A plan holds every call of a step.
constexpr std::int64_t kMostMicroBatches = 32'768;

void check_division(const Run& run) {
  const std::int64_t global = run.batch.global;
  const std::int64_t data = run.strategy_auto ? 1 : run.strategy.pipelines();
  const bool micro_given = run.given("batch.micro");
  const std::int64_t micro = micro_given ? run.batch.micro : 1;
  const std::int64_t unit = micro * data;
  if (micro_given && global / unit > kMostMicroBatches) {
    base::bad_input(
        "{}: found batch.global = {} and batch.micro x strategy.data = {} x {} = {}, which makes {} micro-batches in a step, "
        "expected at most {}; use a larger \"batch.micro\" or a smaller \"batch.global\"",
        where_first(run, {"batch.global", "batch.micro", "strategy.data"}), global, micro, data, unit, global / unit, kMostMicroBatches);
  }
  if (global % unit == 0) return;
  std::string nearest = fmt::format("{}", (global / unit + 1) * unit);
  if (global > unit) nearest = fmt::format("{} or {}", global / unit * unit, nearest);
  std::string remedy = fmt::format("nearest \"batch.global\": {}", nearest);
  if (micro_given && global % data == 0) remedy += fmt::format("; or \"batch.micro\": {}", nearest_divisors(global / data, micro));
  const std::string divisor =
      micro_given ? fmt::format("batch.micro x strategy.data = {} x {} = {}", micro, data, unit) : fmt::format("strategy.data = {}", data);
  base::bad_input("{}: found batch.global = {} and {}, expected the first to be a multiple of the second; {}",
                  where_first(run, {"batch.global", "batch.micro", "strategy.data"}), global, divisor, remedy);
}

void check_batch(const Run& run) {
  check_division(run);
  if (model_known(run) && run.batch.sequence > run.model.context) {
    base::bad_input("{}: found {} for \"batch.sequence\", expected at most {}, which is \"model.context\"",
                    where_first(run, {"batch.sequence", "model.context"}), run.batch.sequence, run.model.context);
  }
}

// A key of another family is harmless with the value it has anyway, and a mistake with any other.
void check_families(const Run& run) {
  Run plain;
  plain.model = families::defaults(run.model.family);
  for (const Field& field : fields()) {
    if (!run.given(field.key) || includes(field, *run.model.family)) continue;
    if (field.write(run) == field.write(plain)) continue;
    base::bad_input("{}: found {} for \"{}\", expected {}: a model of the {} family has no such part", run.where(field.key),
                    field.write(run).describe(), field.key, field.write(plain).describe(), run.model.family->name);
  }
}

// Until the tokenizer has been read, ids may be beyond what the model has by default.
bool vocabulary_open(const Run& run) {
  return run.model_path.empty() && run.given("data.tokenizer") && !run.given("model.vocab") &&
         run.origin("model.vocab").kind != OriginKind::tokenizer;
}

void check_model(const Run& run) {
  check_families(run);
  model::Model model = run.model;
  if (vocabulary_open(run)) model.vocab = std::max(model.vocab, model.pad_token + 1);
  const std::vector<std::string> found = families::problems(model);
  if (found.empty()) return;
  base::bad_input("{}: the model cannot be built: {}", run.where("model"), fmt::join(found, "; "));
}

void check_document_end(const Run& run) {
  if (run.data.document_end < run.model.vocab || vocabulary_open(run)) return;
  base::bad_input("{}: found {} for \"data.document_end\", expected a token of the model's {}", run.where("data.document_end"),
                  run.data.document_end, run.model.vocab);
}

void check_strategy(const Run& run) {
  const strategy::Strategy& strategy = run.strategy;
  const auto stages = static_cast<std::int64_t>(strategy.stages.size());
  if (strategy.partition != strategy::StagePartition::listed || strategy.pipe * strategy.chunks == stages) return;
  base::bad_input("{}: found {} stages, expected strategy.pipe x strategy.chunks = {} x {} = {}", run.where("strategy.stages"), stages,
                  strategy.pipe, strategy.chunks, strategy.pipe * strategy.chunks);
}

void check_training(const Run& run) {
  if (run.mlm.mask + run.mlm.random > 1.0) {
    base::bad_input("{}: found mlm.mask + mlm.random = {} + {} = {}, expected at most 1", where_first(run, {"mlm.mask", "mlm.random"}),
                    run.mlm.mask, run.mlm.random, run.mlm.mask + run.mlm.random);
  }
  if (run.loss_scale.initial < run.loss_scale.minimum) {
    base::bad_input("{}: found {} for \"loss_scale.initial\", expected at least {}, which is \"loss_scale.min\"",
                    where_first(run, {"loss_scale.initial", "loss_scale.min"}), run.loss_scale.initial, run.loss_scale.minimum);
  }
  const LrSchedule& schedule = run.lr_schedule;
  if (schedule.type == LrScheduleType::points && schedule.points.empty()) {
    base::bad_input("{}: found no \"lr_schedule.points\" for the schedule \"points\", expected some such as [[0, 0.1], [100, 1.0]]",
                    run.where("lr_schedule.type"));
  }
  if (schedule.type == LrScheduleType::wsd && schedule.warmup + schedule.decay > run.steps) {
    base::bad_input("{}: found lr_schedule.warmup + lr_schedule.decay = {} + {} = {}, expected at most {}, which is \"steps\"",
                    where_first(run, {"lr_schedule.decay", "lr_schedule.warmup", "steps"}), schedule.warmup, schedule.decay,
                    schedule.warmup + schedule.decay, run.steps);
  }
}

// What can be done with less than f32 masters, and with which weights.
void check_state_forms(const Run& run) {
  const model::Master master = run.optimizer.master;
  if (master == model::Master::f32) return;
  const std::string_view name = choice_name(master);
  if (!run.precision_auto && run.precision == model::Precision::fp16) {
    base::bad_input(
        "{}: found \"{}\" for \"optimizer.master\", expected \"f32\" with the precision \"fp16\", whose weights are neither the upper "
        "halves of "
        "f32 numbers nor wide enough to be updated themselves; the precision \"bf16\" can do it",
        where_first(run, {"optimizer.master", "precision"}), name);
  }
  if (master == model::Master::split && !run.optimizer.rule->has_signs()) {
    base::bad_input(
        "{}: found \"split\" for \"optimizer.master\", which keeps a bit of each number in the sign of an average of squares, expected "
        "\"f32\" or "
        "\"none\" with the optimizer \"{}\"",
        where_first(run, {"optimizer.master", "optimizer.type"}), run.optimizer.rule->name);
  }
}

}  // namespace

bool model_known(const Run& run) { return run.model_path.empty() || run.origin("model").kind == OriginKind::model_path; }

void derive(Run& run) {
  if (model_known(run)) {
    derive_model(run);
    derive_value(run, "batch.sequence", run.batch.sequence, run.model.context, "model.context");
  }
  derive_strategy(run);
  derive_rounds(run);
  const std::int64_t parts = run.strategy_auto ? 1 : run.strategy.pipelines() * run.strategy.turn();
  const std::int64_t share = std::max<std::int64_t>(1, run.batch.global / parts);
  derive_value(run, "batch.micro", run.batch.micro, share, run.strategy_auto ? "batch.global" : "batch.global / strategy.data");
  derive_value(run, "optimizer.weight_decay", run.optimizer.weight_decay, run.optimizer.rule->usual_weight_decay,
               fmt::format("as usual for {}", run.optimizer.rule->name));
  if (run.lr_schedule.type == LrScheduleType::wsd)
    derive_value(run, "lr_schedule.decay", run.lr_schedule.decay, run.steps / 10, "steps / 10");
  const std::string stem = run.name == kStandardInput ? "" : std::filesystem::path(run.name).stem().string();
  derive_value(run, "out", run.out, fmt::format("runs/{}", stem.empty() ? "run" : stem), "the run file's name");
}

void check(const Run& run) {
  Problems problems;
  for (const auto rule : {check_model, check_document_end}) {
    if (model_known(run)) problems.attempt([&] { rule(run); });
  }
  for (const auto rule : {check_strategy, check_batch, check_training, check_state_forms}) problems.attempt([&] { rule(run); });
  problems.raise();
}

}  // namespace plimsoll::config
