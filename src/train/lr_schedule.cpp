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

double warmup_share(const config::LrSchedule& schedule, std::int64_t step) {
  if (schedule.warmup_shape == config::WarmupShape::linear) return static_cast<double>(step) / static_cast<double>(schedule.warmup);
  return std::log(static_cast<double>(step)) / std::log(static_cast<double>(schedule.warmup));
}

double share_between(const std::vector<config::LrPoint>& points, std::int64_t step) {
  const auto after = std::find_if(points.begin(), points.end(), [&](const config::LrPoint& point) { return point.step >= step; });
  if (after == points.end()) return points.back().ratio;
  if (after == points.begin()) return after->ratio;
  const config::LrPoint& before = *(after - 1);
  return before.ratio + (after->ratio - before.ratio) * progress(step, before.step, after->step);
}

}  // namespace

double learning_rate(const config::Run& run, std::int64_t step) {
  const config::LrSchedule& schedule = run.lr_schedule;
  const double full = run.lr;
  if (step < schedule.warmup) return full * (schedule.warmup_from + (1.0 - schedule.warmup_from) * warmup_share(schedule, step));
  const double lowest = schedule.min_ratio;
  const std::int64_t end = schedule.end > 0 ? schedule.end : run.steps;
  switch (schedule.type) {
    case config::LrScheduleType::constant: return full;
    case config::LrScheduleType::linear: return full * (1.0 - (1.0 - lowest) * progress(step, schedule.warmup, end));
    case config::LrScheduleType::cosine: {
      const double turned = 0.5 * (1.0 + std::cos(std::numbers::pi * progress(step, schedule.warmup, end)));
      return full * (lowest + (1.0 - lowest) * turned);
    }
    case config::LrScheduleType::points: return full * share_between(schedule.points, step);
    case config::LrScheduleType::wsd: return full * (1.0 - (1.0 - lowest) * progress(step, end - schedule.decay, end));
  }
  return full;
}

}  // namespace plimsoll::train
