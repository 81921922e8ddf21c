#include "cli/drawn_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/plan_outcome.h"

namespace plimsoll::cli {

namespace {

constexpr std::size_t kMostSpans = 60'000;  // about two megabytes of a page
constexpr std::size_t kFewestClasses = 3;   // the first, one between and the last
constexpr std::size_t kMostClasses = 16;

std::size_t spans_of(const report::ClassTimes& times) {
  std::size_t count = 0;
  for (const std::vector<report::CallTime>& lane : times) count += lane.size();
  return count;
}

// An outline's calls go without labels: they are called what the simulator calls their procedures.
void label_calls(plan::Plan& plan, const executor::sim::Result& result) {
  std::vector<bool> labelled(plan.classes.size(), false);
  for (const executor::sim::RankTimes& times : result.times) {
    if (labelled[times.rank_class]) continue;
    labelled[times.rank_class] = true;
    plan::Program* program = &plan.classes[times.rank_class].programs.front();
    std::vector<std::size_t> next(program->streams.size(), 0);
    for (const executor::sim::Span& span : times.spans)
      program->streams.at(span.lane).calls.at(next[span.lane]++).label = result.routines[span.routine];
  }
}

}  // namespace

DrawnPlan drawn_plan(train::Forecast forecast) {
  std::vector<report::ClassTimes> times = class_times(forecast.plan, forecast.result);
  DrawnPlan drawn{.plan = std::move(forecast.plan), .outlined = forecast.outlined, .times = std::move(times)};
  const std::size_t classes = drawn.plan.classes.size();
  if (!drawn.outlined) return drawn;
  label_calls(drawn.plan, forecast.result);
  drawn.plan.notes.emplace_back(
      "from an outline of the plan: ranks that behave alike once, the first place of the tensor axis for all; places with the same blocks "
      "share the names of their calls");
  std::size_t most = 1;
  for (const report::ClassTimes& each : drawn.times) most = std::max(most, spans_of(each));
  const std::size_t shown = std::min(classes, std::clamp(kMostSpans / most, kFewestClasses, kMostClasses));
  if (shown == classes) return drawn;
  drawn.plan.notes.push_back(
      fmt::format("{} of {} classes of ranks are drawn, evenly spread, the first and the last among them", shown, classes));
  std::vector<plan::RankClass> kept;
  std::vector<report::ClassTimes> kept_times;
  for (std::size_t index = 0; index < shown; ++index) {
    const std::size_t from = index * (classes - 1) / (shown - 1);
    kept.push_back(std::move(drawn.plan.classes[from]));
    kept_times.push_back(std::move(drawn.times[from]));
  }
  drawn.plan.classes = std::move(kept);
  drawn.times = std::move(kept_times);
  return drawn;
}

}  // namespace plimsoll::cli
