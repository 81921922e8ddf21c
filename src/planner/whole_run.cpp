#include "planner/whole_run.h"

#include <cmath>

namespace plimsoll::planner {

namespace {

constexpr double kHour = 3600.0;

}  // namespace

double seconds_per_second(double between, double interval, double save, double restart) {
  return between * std::exp(restart / between) * std::expm1((interval + save) / between) / interval;
}

double best_interval(double between, double save) {
  // Where the derivative is zero: (t/M - 1) e^((t+C)/M) + 1, which rises from below zero to 1 at t = M.
  double low = 0.0;
  double high = between;
  for (int halving = 0; halving < 200; ++halving) {
    const double middle = 0.5 * (low + high);
    const double slope = (middle / between - 1.0) * std::exp((middle + save) / between) + 1.0;
    (slope < 0.0 ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

WholeRun whole_run(double tokens, double tokens_per_step, double step_seconds, std::int64_t devices, const RunPrices& prices) {
  WholeRun run;
  run.steps = static_cast<std::int64_t>(std::ceil(tokens / tokens_per_step));
  run.training_seconds = static_cast<double>(run.steps) * step_seconds;
  run.wall_seconds = run.training_seconds;
  if (prices.device_mtbf > 0.0) {
    const double between = prices.device_mtbf * kHour / static_cast<double>(devices);
    run.save_every_seconds = best_interval(between, prices.save_seconds);
    const double factor = seconds_per_second(between, run.save_every_seconds, prices.save_seconds, prices.restart_seconds);
    run.effective_share = 1.0 / factor;
    run.wall_seconds = run.training_seconds * factor;
  }
  run.device_hours = run.wall_seconds / kHour * static_cast<double>(devices);
  run.kwh = run.device_hours * prices.watts * prices.overhead / 1000.0;
  run.kg_co2 = run.kwh * prices.kg_per_kwh;
  run.money = run.device_hours * prices.device_hour;
  return run;
}

}  // namespace plimsoll::planner
