// DeepSpeed's batch triple: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data ranks.
// What is missing is solved for, and a remainder is an error instead of being cut off.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "config/deepspeed.h"
#include "config/field.h"
#include "strategy/dimension.h"

namespace plimsoll::config {

namespace {

constexpr std::int64_t kMost = 1'000'000'000;

struct Known {
  std::int64_t value = 0;  // 0: not known
  std::string name;        // what it is called where it was given
  std::string where;
};

std::string shown(const Known& known) { return fmt::format("{} {}", known.name, known.value); }

}  // namespace

void DeepSpeedTranslation::batch() {
  const auto from_key = [&](std::string_view path) -> Known {
    const base::Json* value = given(path);
    if (value == nullptr) return {.value = 0, .name = std::string(path), .where = ""};
    if (value->as_integer() < 1 || value->as_integer() > kMost)
      base::bad_input("{}: found {} for \"{}\", expected an integer from 1 to {}", value->where(), value->describe(), path, kMost);
    return {.value = value->as_integer(), .name = std::string(path), .where = value->where()};
  };
  // --set comes before the DeepSpeed file; the run file must agree with it.
  const auto known = [&](std::string_view path, std::string_view setting, std::int64_t in_run) {
    Known result = from_key(path);
    if (!run_.given(setting)) return result;
    const bool overridden = run_.origin(setting).kind == OriginKind::set;
    if (result.value != 0 && result.value != in_run && !overridden) {
      base::bad_input("{}: found {} for \"{}\", but {} says {} for \"{}\"; expected them to agree: remove one", result.where, result.value,
                      path, run_.where(setting), in_run, setting);
    }
    if (result.value == 0 || overridden) return Known{.value = in_run, .name = std::string(setting), .where = run_.where(setting)};
    return result;
  };
  Known total = known("train_batch_size", "batch.global", run_.batch.global);
  Known micro = known("train_micro_batch_size_per_gpu", "batch.micro", run_.batch.micro);
  Known steps = from_key("gradient_accumulation_steps");
  Known data{.value = 0, .name = "data ranks", .where = run_.name};
  if (run_.given("strategy.data") || run_.strategy_auto) data.value = run_.strategy_auto ? 1 : run_.strategy.data;

  if (given("train_batch_size") == nullptr && given("train_micro_batch_size_per_gpu") == nullptr && steps.value == 0) return;
  std::string solved;
  const auto solve = [&](Known& unknown, std::int64_t numerator, std::int64_t denominator, const std::string& how) {
    if (numerator % denominator != 0) {
      base::bad_input(
          "{}: found {} / ({}) = {} / {}, which leaves a remainder of {}; expected train_batch_size to be a multiple of the rest",
          total.where.empty() ? run_.name : total.where, shown(total), how, numerator, denominator, numerator % denominator);
    }
    unknown.value = numerator / denominator;
    solved = unknown.name;
  };
  if (total.value != 0 && micro.value != 0 && steps.value != 0 && data.value == 0) {
    solve(data, total.value, micro.value * steps.value, fmt::format("{} x {}", shown(micro), shown(steps)));
  }
  if (data.value == 0) data.value = 1;
  if (data.value > strategy::kMostRanks)
    base::bad_input("{}: found {} / ({} x {}) = {} data ranks, expected at most {}", total.where, total.value, shown(micro), shown(steps),
                    data.value, strategy::kMostRanks);
  // Nobody says how large the batch is: about the default, but whole.
  if (total.value == 0 && micro.value == 0)
    micro = {.value = std::max<std::int64_t>(1, run_.batch.global / data.value / steps.value), .name = "batch.micro", .where = steps.where};
  if (steps.value == 0 && (total.value == 0 || micro.value == 0)) steps.value = 1;
  if (total.value == 0) {
    if (micro.value * steps.value > kMost / data.value)
      base::bad_input("{}: found {} x {} x {}, expected at most {} sequences in a step", micro.where, micro.value, steps.value, data.value,
                      kMost);
    total.value = micro.value * steps.value * data.value;
    solved = total.name;
  } else if (micro.value == 0) {
    solve(micro, total.value, steps.value * data.value, fmt::format("{} x {}", shown(steps), shown(data)));
  } else if (steps.value == 0) {
    solve(steps, total.value, micro.value * data.value, fmt::format("{} x {}", shown(micro), shown(data)));
  }
  if (total.value / data.value / micro.value != steps.value || total.value % (data.value * micro.value) != 0) {
    base::bad_input("{}: found {} = {}, but {} x {} x {} = {}; expected the first to be the product of the rest", total.where, total.name,
                    total.value, shown(micro), shown(steps), shown(data),
                    static_cast<double>(micro.value) * static_cast<double>(steps.value) * static_cast<double>(data.value));
  }
  run_.deepspeed.equation =
      fmt::format("batch: train_batch_size {} = micro-batch {} x accumulation steps {} x data ranks {}{}", total.value, micro.value,
                  steps.value, data.value, solved.empty() ? "" : fmt::format(" (solved for {})", solved));
  const auto put = [&](std::string_view setting, std::int64_t& place, std::int64_t value, std::string_view path) {
    if (run_.given(setting)) return;
    place = value;
    const base::Json* found = given(path);
    run_.origins[std::string(setting)] = {.kind = OriginKind::deepspeed,
                                          .text = found != nullptr ? fmt::format("{} {}", found->where(), path)
                                                                   : fmt::format("derived: {}", run_.deepspeed.equation.substr(7))};
  };
  put("batch.global", run_.batch.global, total.value, "train_batch_size");
  put("batch.micro", run_.batch.micro, micro.value, "train_micro_batch_size_per_gpu");
  if (!run_.strategy_auto && data.value != run_.strategy.data) put("strategy.data", run_.strategy.data, data.value, "");
}

}  // namespace plimsoll::config
