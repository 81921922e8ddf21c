#include "cli/train_page.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/plan_outcome.h"
#include "executor/sim/simulate.h"
#include "io/files.h"
#include "train/foresight/forecast.h"
#include "train/setup/this_machine.h"
#include "train/traced_step.h"

namespace plimsoll::cli {

namespace {

using base::Json;
using report::ClassTimes;

constexpr std::size_t kUncounted = 2;  // steps
constexpr std::size_t kClassesOnPage = 8;
constexpr std::size_t kShownCalls = 15;

const plan::Program& train_program(const plan::RankClass& rank_class) { return *plan::find_program(rank_class, train::kTrain); }

// Seconds of both, by a name.
using Sums = std::map<std::string, std::pair<double, double>>;

template <typename Name>
Sums sums_of(const plan::Program& program, const ClassTimes& predicted, const ClassTimes& measured, const Name& name) {
  Sums sums;
  for (std::size_t stream = 0; stream < program.streams.size(); ++stream) {
    for (std::size_t index = 0; index < program.streams[stream].calls.size(); ++index) {
      std::pair<double, double>& sum = sums[name(program.streams[stream], program.streams[stream].calls[index])];
      const auto seconds = [&](const ClassTimes& times) { return times[stream][index].end - times[stream][index].begin; };
      sum.first += seconds(predicted);
      sum.second += seconds(measured);
    }
  }
  return sums;
}

Json::Array row_of(const std::string& what, double predicted, double measured) {
  return {Json(what), measured > 0.0 ? Json(measured) : Json(), predicted > 0.0 ? Json(predicted) : Json(),
          measured > 0.0 && predicted > 0.0 ? Json(predicted / measured - 1.0) : Json()};
}

report::PageTable table_of(std::string title, std::string about) {
  using Format = report::PageTable::Format;
  return {
      .title = std::move(title),
      .about = std::move(about),
      .columns = {{"what", Format::text}, {"measured", Format::seconds}, {"predicted", Format::seconds}, {"difference", Format::percent}},
      .rows = {},
      .chosen = -1,
      .refused = {}};
}

// What a machine that was not measured is guessed to do says nothing of a step that was.
void leave_out_predictions(report::PageTable& table) {
  table.columns.resize(2);
  for (Json::Array& row : table.rows) row.erase(row.begin() + 2, row.end());
}

// How long the traced step took, by the calls that are drawn.
double length_of(const std::vector<ClassTimes>& classes) {
  double end = 0.0;
  for (const ClassTimes& times : classes) {
    for (const std::vector<report::CallTime>& calls : times) {
      for (const report::CallTime& call : calls) end = std::max(end, call.end);
    }
  }
  return end;
}

// The losses in the run's log, also of what was trained before a stop; of many steps a thousand.
report::PageCurve loss_curve(io::FileSystem& file_system, const std::string& log) {
  constexpr std::size_t kMostPoints = 1000;
  report::PageCurve::Line losses{.name = "loss", .points = {}};
  report::PageCurve::Line evaluated{.name = "loss over data.valid", .points = {}};
  const std::string text = io::read_text(file_system, log);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const Json step = base::parse_json(std::string_view(text).substr(at, end - at), log);
    const auto add = [&](report::PageCurve::Line& line, const char* key) {
      const Json* value = step.find(key);
      if (value != nullptr && value->is_number()) line.points.emplace_back(step.at("step").as_double(), value->as_double());
    };
    add(losses, "loss");
    add(evaluated, "eval_loss");
    at = end + 1;
  }
  const std::size_t every = (losses.points.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t kept = 0; every > 1 && kept * every < losses.points.size(); ++kept) losses.points[kept] = losses.points[kept * every];
  if (every > 1) losses.points.resize((losses.points.size() + every - 1) / every);
  report::PageCurve curve{.title = "Loss", .lines = {std::move(losses)}};
  if (!evaluated.points.empty()) curve.lines.push_back(std::move(evaluated));
  return curve;
}

struct Comparison {
  const train::End& trained;
  double step_seconds = 0.0;
  const std::vector<ClassTimes>& predicted;
  double predicted_step = 0.0;
  std::vector<executor::Surrounding> around = {};  // predicted

  std::string named(const plan::RankClass& rank_class, const std::string& what) const {
    return trained.plan.classes.size() == 1 ? what : fmt::format("{}: {}", rank_class.name, what);
  }

  report::PageTable works() const {
    report::PageTable table = table_of(
        "The traced step", "Of its streams, the time that calls of each kind took, waiting for others included. Streams run at once.");
    double traced = length_of(trained.times);
    for (const executor::Surrounding& each : trained.timeline.around) traced += each.seconds;
    table.rows.push_back(row_of("step", predicted_step, trained.times.empty() ? step_seconds : traced));
    table.chosen = 0;
    for (std::size_t index = 0; index < around.size() && trained.timeline.around.size() == around.size(); ++index) {
      const std::string what = around[index].before ? "rows of the token table, brought" : "rows of the token table, taken back";
      table.rows.push_back(row_of(what, around[index].seconds, trained.timeline.around[index].seconds));
    }
    for (std::size_t index = 0; index < std::min(kClassesOnPage, trained.times.size()); ++index) {
      const plan::RankClass& rank_class = trained.plan.classes[index];
      const Sums sums =
          sums_of(train_program(rank_class), predicted[index], trained.times[index],
                  [](const plan::Stream& stream, const plan::Call& call) { return report::work_name(stream.kind, call.label.text()); });
      for (const auto& [name, sum] : sums) table.rows.push_back(row_of(named(rank_class, name), sum.first, sum.second));
    }
    return table;
  }

  report::PageTable calls() const {
    report::PageTable table = table_of("Where the two differ most", "Calls of the traced step by name, micro-batches together.");
    struct Difference {
      std::string name;
      double predicted;
      double measured;
    };
    std::vector<Difference> rows;
    for (std::size_t index = 0; index < trained.times.size(); ++index) {
      const plan::RankClass& rank_class = trained.plan.classes[index];
      for (const auto& [name, sum] : sums_of(train_program(rank_class), predicted[index], trained.times[index],
                                             [](const plan::Stream&, const plan::Call& call) { return call.label.text(); }))
        rows.push_back({named(rank_class, name), sum.first, sum.second});
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Difference& a, const Difference& b) {
      return std::abs(a.predicted - a.measured) > std::abs(b.predicted - b.measured);
    });
    rows.resize(std::min(rows.size(), kShownCalls));
    for (const Difference& row : rows) table.rows.push_back(row_of(row.name, row.predicted, row.measured));
    return table;
  }
};

}  // namespace

void StepSeconds::on(const observe::Event& event) {
  if (const auto* step = std::get_if<observe::StepDone>(&event)) seconds_.push_back(step->seconds);
}

double StepSeconds::median() const {
  if (seconds_.empty()) return 0.0;
  const std::size_t first = seconds_.size() > kUncounted ? kUncounted : seconds_.size() - 1;
  std::vector<double> counted(seconds_.begin() + static_cast<std::ptrdiff_t>(first), seconds_.end());
  const auto middle = counted.begin() + static_cast<std::ptrdiff_t>(counted.size() / 2);
  std::nth_element(counted.begin(), middle, counted.end());
  return *middle;
}

std::string train_page(io::FileSystem& file_system, const train::End& trained, double step_seconds) {
  const cluster::Cluster cluster = train::open_cluster(file_system, "this", trained.run, trained.plan.mesh.ranks());
  executor::sim::Result result = executor::sim::simulate(trained.plan, cluster, {.spans = true});
  double predicted = result.seconds / static_cast<double>(trained.run.strategy.flush_every);
  const std::vector<executor::Surrounding> around = train::simulated_around(trained.plan, cluster, result.bytes);
  for (const executor::Surrounding& each : around) predicted += each.seconds;
  const auto tokens = static_cast<double>(trained.run.batch.global * trained.run.batch.sequence);
  plan::Plan bare;
  bare.model = trained.plan.model;
  bare.strategy = trained.plan.strategy;
  bare.notes = trained.plan.notes;
  const bool known = !cluster.origin.starts_with("guessed");
  double traced = length_of(trained.times);
  for (const executor::Surrounding& each : trained.timeline.around) traced += each.seconds;
  report::Page page{.plan = train::is_drawn(trained.plan) ? trained.plan : bare,
                    .capacity = trained.capacity.device,
                    .reserve = trained.capacity.reserve,
                    .times = trained.times,
                    .times_name = "measured",
                    .figures = {{"step, median", seconds_text(step_seconds)},
                                {"tokens/s", count_text(tokens / step_seconds)},
                                {"TFLOP/s a device",
                                 fmt::format("{:.4g}", result.model_flops / static_cast<double>(result.ranks) /
                                                           (static_cast<double>(trained.run.strategy.flush_every) * step_seconds) / 1e12)}},
                    .tables = {}};
  if (!trained.times.empty()) page.figures.insert(page.figures.begin() + 1, {"step that was traced", seconds_text(traced)});
  if (known) {
    page.figures.emplace_back("step, predicted", seconds_text(predicted));
    page.figures.emplace_back("predicted to median", fmt::format("{:+.1f}%", 100.0 * (predicted / step_seconds - 1.0)));
  } else {
    page.figures.emplace_back("prediction", "after plimsoll calibrate");
  }
  page.curves.push_back(loss_curve(file_system, trained.run.out + "/metrics.jsonl"));
  const std::vector<ClassTimes> simulated = class_times(trained.plan, result);
  const Comparison comparison{
      .trained = trained, .step_seconds = step_seconds, .predicted = simulated, .predicted_step = predicted, .around = around};
  page.tables.push_back(comparison.works());
  if (!trained.times.empty() && known) {
    page.beside = simulated;
    page.beside_name = "predicted";
    page.tables.push_back(comparison.calls());
  }
  if (!known) leave_out_predictions(page.tables.front());
  return report::page_html(page);
}

}  // namespace plimsoll::cli
