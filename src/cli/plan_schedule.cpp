#include "cli/plan_schedule.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "io/files.h"
#include "observe/terminal.h"
#include "report/gantt_svg.h"
#include "report/gantt_table.h"
#include "report/gantt_text.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"
#include "train/setup/setup.h"

namespace plimsoll::cli {

namespace {

namespace schedules = strategy::schedules;
using base::Json;
using report::Gantt;
using schedules::Kind;
using schedules::Schedule;
using schedules::Shape;

constexpr int kWidthOfFiles = 110;
constexpr int kWidthOfTablesInFiles = 120;  // for what schedules are about
constexpr int kLeastWidth = 72;

bool is_file(std::string_view name) { return name.ends_with(schedules::kCsvSuffix); }

Shape shape_of(const config::Run& run) {
  if (run.strategy_auto) return {.micro_batches = run.micro_batches()};
  return {.ranks = run.strategy.pipe, .micro_batches = run.micro_batches(), .chunks = run.strategy.chunks};
}

// The run's shape for one kind. Side by side, kinds keep the run's ranks and micro-batches but not its chunks, which no two kinds
// could share. A schedule without a flush is laid out until its steady part can be seen.
Shape shape_for(const Kind& kind, Shape shape, bool side_by_side) {
  if (side_by_side) shape.chunks = kind.chunked ? std::max<std::int64_t>(shape.chunks, 2) : 1;
  if (kind.asynchronous) shape.batches = std::max<std::int64_t>(2, (3 * shape.ranks + shape.micro_batches - 1) / shape.micro_batches);
  return shape;
}

// As a run has it that names the schedule.
Shape stored_shape(const config::Run& run) {
  Shape shape = shape_of(run);
  if (!run.strategy_auto) shape.batches = run.strategy.flush_every;
  return shape;
}

Gantt gantt_for(const Kind& kind, const Shape& shape, const config::Run& run) {
  Schedule schedule = schedules::build(kind.name, shape);
  const bool recomputes = run.strategy.recompute == strategy::Recompute::full && !kind.recomputes;
  if (recomputes) schedule = schedules::with_recompute(std::move(schedule));
  Gantt gantt = report::gantt_of(std::move(schedule), std::string(kind.about));
  if (!recomputes) gantt.formula = kind.bubble;  // recomputes are not in it
  if (kind.asynchronous) {
    Shape longer = shape;
    longer.batches *= 2;
    if (schedules::reasons_against(kind, longer).empty()) {
      Schedule twice = schedules::build(kind.name, longer);
      if (recomputes) twice = schedules::with_recompute(std::move(twice));
      report::set_steady(gantt, schedules::steady_bubble(gantt.schedule, twice, gantt.costs));
    }
  }
  return gantt;
}

Gantt gantt_of_file(io::FileSystem& file_system, const std::string& path, const Shape& shape) {
  return report::gantt_of(train::open_schedule(file_system, path, shape), "from a file");
}

std::vector<report::GanttRow> all_rows(const config::Run& run, const std::vector<std::string>& drawn) {
  std::vector<report::GanttRow> rows;
  for (const Kind& kind : schedules::kinds()) {
    const Shape shape = shape_for(kind, shape_of(run), true);
    report::GanttRow row{.name = std::string(kind.name),
                         .drawn = std::find(drawn.begin(), drawn.end(), kind.name) != drawn.end(),
                         .reason = "",
                         .gantt = {}};
    const std::vector<std::string> reasons = schedules::reasons_against(kind, shape);
    if (reasons.empty()) {
      row.gantt = gantt_for(kind, shape, run);
    } else {
      row.reason = reasons[0].substr(0, reasons[0].find(';'));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// What passes between two stages, the activations of one micro-batch or their gradient, and what all tensor ranks of the sender's
// together send of it: each its rows, or each everything. With tensor degrees that differ from stage to stage there is no one figure.
struct Boundary {
  base::Bytes whole;
  std::int64_t tensor_ranks = 1;
  bool scattered = false;
  base::Bytes sent;

  bool is_known() const { return sent.count > 0; }
  base::Bytes saved() const { return base::Bytes{scattered ? (tensor_ranks - 1) * whole.count : 0}; }
};

Boundary boundary_of(const config::Run& run) {
  const std::int64_t element = run.precision == model::Precision::f32 ? 4 : 2;
  const base::Bytes whole{run.batch.micro * run.batch.sequence * run.model.width * element};
  if (run.strategy_auto) return {.whole = whole, .sent = whole};
  Boundary boundary{.whole = whole, .sent = {}};
  const strategy::Strategy& strategy = run.strategy;
  boundary.tensor_ranks = strategy.at(0).tensor;
  for (std::int64_t place = 1; place < strategy.pipe; ++place) {
    if (strategy.at(place).tensor != boundary.tensor_ranks) return boundary;
  }
  boundary.scattered = boundary.tensor_ranks > 1 && (strategy.scatter_boundaries || strategy.sequence_parallel);
  boundary.sent = boundary.scattered ? boundary.whole : boundary.whole * boundary.tensor_ranks;
  return boundary;
}

Json numbers(const std::vector<std::int64_t>& values) {
  Json list = Json::array({});
  for (std::int64_t value : values) list.push(Json(value));
  return list;
}

Json to_json(const Gantt& gantt, const config::Run& run) {
  const Shape& shape = gantt.schedule.shape;
  const Boundary boundary = boundary_of(run);
  Json orders = Json::array({});
  for (const std::vector<schedules::Item>& items : gantt.schedule.ranks) orders.push(Json(schedules::short_names(items)));
  return Json::object({{"schedule", gantt.schedule.name},
                       {"ranks", shape.ranks},
                       {"micro_batches", shape.micro_batches},
                       {"chunks", shape.chunks},
                       {"batches", shape.batches},
                       {"makespan", gantt.figures.makespan},
                       {"step", gantt.step},
                       {"bubble_fraction", gantt.bubble},
                       {"bubble_fraction_without_flush", gantt.flowing ? Json(*gantt.flowing) : Json()},
                       {"peak_live_stages", numbers(gantt.figures.peak_live)},
                       {"peak_full_stages", numbers(gantt.figures.peak_full)},
                       {"weight_versions", numbers(gantt.figures.versions)},
                       {"messages", numbers(gantt.figures.messages)},
                       {"message_bytes", boundary.whole.count},
                       {"bytes_sent", boundary.is_known() ? Json(gantt.messages * boundary.sent.count) : Json()},
                       {"bytes_saved", boundary.is_known() ? Json(gantt.messages * boundary.saved().count) : Json()},
                       {"orders", orders}});
}

void print_text(const std::vector<Gantt>& gantts, const config::Run& run, const std::vector<std::string>& names) {
  const observe::Terminal terminal = observe::detect_terminal(1);
  const int width = terminal.interactive ? std::max(terminal.columns, kLeastWidth) : kWidthOfFiles;
  const Shape shape = shape_of(run);
  const Boundary boundary = boundary_of(run);
  const auto say = [&](const std::string& words) { fmt::print("{}\n", report::wrapped(words, width, 0)); };
  say(fmt::format("{} pipeline rank{}, {} micro-batch{} a step; a forward takes 1, a backward 2, a message no time and {}", shape.ranks,
                  shape.ranks == 1 ? "" : "s", shape.micro_batches, shape.micro_batches == 1 ? "" : "es", base::to_string(boundary.whole)));
  if (boundary.tensor_ranks > 1 && boundary.is_known()) {
    say(boundary.scattered
            ? fmt::format("each of {} tensor ranks sends its rows of a message alone, which saves {} of {}", boundary.tensor_ranks,
                          base::to_string(boundary.saved()), base::to_string(boundary.whole * boundary.tensor_ranks))
            : fmt::format("each of {} tensor ranks sends all of a message: {} together", boundary.tensor_ranks,
                          base::to_string(boundary.sent)));
  }
  fmt::print("\n");
  fmt::print(
      "{}\n{}", report::gantt_text(gantts, {.color = terminal.color, .width = width}),
      report::gantt_table(all_rows(run, names), {.color = terminal.color, .width = terminal.interactive ? width : kWidthOfTablesInFiles}));
  if (shape.ranks > 1) return;
  fmt::print("\n");
  say("one rank has nobody to wait for; try --set strategy.pipe=4 and a smaller batch.micro");
}

}  // namespace

void plan_schedules(io::FileSystem& file_system, const config::Run& run, const PlanOptions& options) {
  const std::vector<std::string>& names = options.schedules;
  if (!options.out.empty() && names.size() > 1) {
    base::bad_input("--out stores one schedule, found {} with --schedule; expected one", names.size());
  }
  std::vector<Gantt> gantts;
  for (const std::string& name : names) {
    if (is_file(name)) {
      gantts.push_back(gantt_of_file(file_system, name, shape_of(run)));
    } else {
      const Kind& kind = schedules::find_kind(name);
      const Shape shape = options.out.empty() ? shape_for(kind, shape_of(run), names.size() > 1) : stored_shape(run);
      gantts.push_back(gantt_for(kind, shape, run));
    }
  }
  for (Gantt& gantt : gantts) gantt.message = boundary_of(run).sent;
  if (!options.out.empty()) io::replace_file(file_system, options.out, io::as_bytes(schedules::write_csv(gantts[0].schedule)));
  if (!options.svg.empty()) io::replace_file(file_system, options.svg, io::as_bytes(report::gantt_svg(gantts)));
  if (!options.run.json) return print_text(gantts, run, names);
  Json list = Json::array({});
  for (const Gantt& gantt : gantts) list.push(to_json(gantt, run));
  fmt::print("{}\n", base::write_json(Json::object({{"schedules", std::move(list)}}), base::JsonLayout::pretty));
}

}  // namespace plimsoll::cli
