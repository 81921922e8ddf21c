// The page of a search: strategies compared, the best one drawn.
#include <fmt/format.h>

#include "base/json.h"
#include "cli/drawn_plan.h"
#include "cli/plan_outcome.h"
#include "io/files.h"
#include "report/page.h"
#include "train/foresight/planning.h"
#include "train/setup/setup.h"

namespace plimsoll::cli {

namespace {

using base::Json;

constexpr std::int64_t kMostWhole = 64;  // ranks, whose plan is drawn whole; of more what simulation takes, perhaps an outline

report::PageTable strategies_table(const Outcome& outcome) {
  using Format = report::PageTable::Format;
  report::PageTable table{.title = "Strategies",
                          .about =
                              "The best of each division of the ranks, simulated unless it says estimated, then what lies beside the best "
                              "and why it lost.",
                          .columns = {{"strategy", Format::text},
                                      {"step", Format::seconds},
                                      {"tokens/s", Format::count},
                                      {"TFLOP/s", Format::count},
                                      {"bubble", Format::percent},
                                      {"device", Format::bytes},
                                      {"verdict", Format::text}},
                          .rows = {},
                          .chosen = 0,
                          .refused = {}};
  const auto add = [&](const std::string& name, const planner::Estimate& estimate, const std::string& verdict) {
    const double seconds = estimate.step_seconds;
    if (!estimate.fits()) table.refused.push_back(static_cast<std::int32_t>(table.rows.size()));
    const bool known = seconds > 0.0;
    table.rows.push_back({Json(name), known ? Json(seconds) : Json(), known ? Json(tokens_per_step(outcome.problem) / seconds) : Json(),
                          known ? Json(model_tflops(outcome.problem, seconds)) : Json(), known ? Json(estimate.bubble) : Json(),
                          known ? Json(estimate.memory.device().count) : Json(), Json(verdict)});
  };
  for (std::size_t index = 0; index < outcome.rows.size(); ++index) {
    const Candidate& row = outcome.rows[index];
    const std::string verdict = index == 0 ? "best" : planner::why_slower(row.estimate, outcome.rows[0].estimate);
    add(planner::describe(row.choice), row.estimate,
        verdict + (!outcome.simulated[index]            ? " (estimated)"
                   : outcome.simulated[index]->outlined ? " (outlined)"
                                                        : ""));
  }
  for (const planner::Verdict& verdict : outcome.verdicts)
    add(fmt::format("with {} instead", verdict.what), verdict.candidate.estimate,
        verdict.simulated || verdict.candidate.estimate.step_seconds <= 0.0 ? verdict.reason : verdict.reason + " (estimated)");
  return table;
}

report::PageTable whole_run_table(const planner::WholeRun& run) {
  using Format = report::PageTable::Format;
  return {.title = "The whole training",
          .about = "",
          .columns = {{"steps", Format::count},
                      {"wall time", Format::seconds},
                      {"device-hours", Format::count},
                      {"kWh", Format::count},
                      {"kg CO2", Format::count},
                      {"money", Format::count},
                      {"time that is training", Format::percent}},
          .rows = {{Json(run.steps), Json(run.wall_seconds), Json(run.device_hours), run.kwh > 0.0 ? Json(run.kwh) : Json(),
                    run.kwh > 0.0 ? Json(run.kg_co2) : Json(), run.money > 0.0 ? Json(run.money) : Json(), Json(run.effective_share)}},
          .chosen = -1,
          .refused = {}};
}

report::PageTable failures_table(const Whole& whole) {
  using Format = report::PageTable::Format;
  return {.title = "Failures and checkpoints",
          .about = fmt::format("One failure of a device in {:.6g} hours. Checkpoints of {} are saved at {}/s ({}).",
                               whole.prices.device_mtbf, base::to_string(whole.checkpoint),
                               base::to_string(base::Bytes{static_cast<std::int64_t>(whole.storage)}), whole.saved_to),
          .columns = {{"save every", Format::seconds},
                      {"a save takes", Format::seconds},
                      {"a restart takes", Format::seconds},
                      {"time that is training", Format::percent}},
          .rows = {{Json(whole.run.save_every_seconds), Json(whole.prices.save_seconds), Json(whole.prices.restart_seconds),
                    Json(whole.run.effective_share)}},
          .chosen = -1,
          .refused = {}};
}

}  // namespace

void write_page(io::FileSystem& file_system, const Outcome& outcome, const PlanOptions& options) {
  const Candidate& best = outcome.rows[0];
  const config::Run run = train::decided(outcome.run, best.choice);
  train::ForecastOptions whole_or_outline{.spans = true};
  if (outcome.problem.ranks <= kMostWhole) whole_or_outline.outline = false;
  const DrawnPlan drawn = drawn_plan(train::forecast(run, outcome.cluster, whole_or_outline));
  report::Page page{.plan = drawn.plan,
                    .outlined = drawn.outlined,
                    .capacity = outcome.problem.device,
                    .reserve = {},
                    .times = drawn.times,
                    .figures = {{"cluster", outcome.cluster.name},
                                {"ranks", fmt::format("{}", outcome.problem.ranks)},
                                {"step", seconds_text(best.estimate.step_seconds)},
                                {"tokens/s", count_text(tokens_per_step(outcome.problem) / best.estimate.step_seconds)},
                                {"TFLOP/s a device", fmt::format("{:.1f}", model_tflops(outcome.problem, best.estimate.step_seconds))},
                                {"device memory", base::to_string(best.estimate.memory.device())}},
                    .tables = {strategies_table(outcome)}};
  if (const auto whole = whole_run_of(outcome, options)) {
    if (options.tokens > 0.0) page.tables.push_back(whole_run_table(whole->run));
    if (options.mtbf > 0.0) page.tables.push_back(failures_table(*whole));
  }
  io::replace_file(file_system, options.html, io::as_bytes(report::page_html(page)));
}

}  // namespace plimsoll::cli
