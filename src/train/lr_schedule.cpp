#include "train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace plimsoll::train {

namespace {

// How far the fall has come, from 0 at step `first` to 1 at step `last`.
double progress(std::int64_t step, std::int64_t first, std::int64_t last) {
  if (last <= first) return step >= last ? 1.0 : 0.0;
  return std::clamp(static_cast<double>(step - first) / static_cast<double>(last - first), 0.0, 1.0);
}

}  // namespace

double learning_rate(const config::Run& run, std::int64_t step) {
  const config::LrSchedule& schedule = run.lr_schedule;
  const double full = run.lr;
  if (step < schedule.warmup) return full * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  const double lowest = schedule.min_ratio;
  switch (schedule.type) {
    case config::LrScheduleType::constant: return full;
    case config::LrScheduleType::linear: return full * (1.0 - (1.0 - lowest) * progress(step, schedule.warmup, run.steps));
    case config::LrScheduleType::cosine: {
      const double turned = 0.5 * (1.0 + std::cos(std::numbers::pi * progress(step, schedule.warmup, run.steps)));
      return full * (lowest + (1.0 - lowest) * turned);
    }
    case config::LrScheduleType::wsd: return full * (1.0 - (1.0 - lowest) * progress(step, run.steps - schedule.decay, run.steps));
  }
  return full;
}

}  // namespace plimsoll::train
