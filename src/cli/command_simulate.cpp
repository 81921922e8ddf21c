// `plimsoll simulate`: a run's step on a cluster that need not be here.
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/drawn_plan.h"
#include "cli/plan_outcome.h"
#include "cluster/presets.h"
#include "io/files.h"
#include "io/posix_file_system.h"
#include "observe/chrome_trace.h"
#include "report/page.h"
#include "train/foresight/forecast.h"
#include "train/machine/calibrate.h"
#include "train/setup/setup.h"
#include "train/setup/this_machine.h"

namespace plimsoll::cli {

namespace {

using base::Json;
using executor::sim::LinkClass;
using executor::sim::RankTimes;
using train::Forecast;

constexpr std::size_t kTracedRanks = 16;
constexpr std::size_t kWaterlinePoints = 200;
constexpr std::size_t kShownClasses = 6;
constexpr std::array<plan::Tier, plan::kTiers> kTiers{plan::Tier::device, plan::Tier::host, plan::Tier::disk};

// So many of a list, evenly spread, its ends among them.
std::vector<std::size_t> spread(std::size_t count, std::size_t most) {
  std::vector<std::size_t> chosen;
  const std::size_t shown = std::min(count, most);
  for (std::size_t index = 0; index < shown; ++index) chosen.push_back(shown == 1 ? 0 : index * (count - 1) / (shown - 1));
  return chosen;
}

Json arenas_json(const plan::Plan& plan) {
  Json classes = Json::object();
  for (const plan::RankClass& rank_class : plan.classes) {
    Json tiers = Json::object();
    for (const plan::Tier tier : kTiers) {
      const base::Bytes arena = rank_class.arena[static_cast<std::size_t>(tier)];
      if (arena.count > 0) tiers.set(plan::name_of(tier), Json(arena.count));
    }
    classes.set(rank_class.name, std::move(tiers));
  }
  return classes;
}

Json waterline_json(const Forecast& forecast) {
  Json classes = Json::object();
  if (forecast.outlined) return classes;
  for (std::size_t index = 0; index < forecast.result.times.size(); ++index) {
    const plan::RankClass& rank_class = forecast.plan.classes[forecast.result.times[index].rank_class];
    Json tiers = Json::object();
    for (const plan::Tier tier : kTiers) {
      if (rank_class.arena[static_cast<std::size_t>(tier)].count == 0) continue;
      Json points = Json::array();
      for (const auto& [seconds, bytes] : train::waterline_over_time(forecast, index, tier, kWaterlinePoints))
        points.push(Json::array({Json(seconds), Json(bytes.count)}));
      tiers.set(plan::name_of(tier), std::move(points));
    }
    classes.set(forecast.result.times[index].name, std::move(tiers));
  }
  return classes;
}

Json to_json(const Forecast& forecast, const cluster::Cluster& cluster) {
  const executor::sim::Result& result = forecast.result;
  Json moved = Json::object();
  for (std::size_t link = 0; link < executor::sim::kLinkNames.size(); ++link)
    moved.set(executor::sim::kLinkNames[link], Json(result.bytes[link]));
  Json ranks = Json::array();
  for (const RankTimes& times : result.times) {
    ranks.push(Json::object({{"name", times.name},
                             {"ranks", times.ranks},
                             {"computing_seconds", times.computing},
                             {"exposed_seconds", times.exposed},
                             {"waiting_seconds", times.waiting}}));
  }
  Json around = Json::object();
  for (const executor::Surrounding& each : forecast.around) around.set(each.program, Json(each.seconds));
  return Json::object(
      {{"fits", forecast.fits()},
       {"reason", forecast.fits() ? Json() : Json(forecast.reason)},
       {"strategy", forecast.plan.strategy},
       {"cluster",
        Json::object({{"name", cluster.name}, {"origin", cluster.origin}, {"nodes", cluster.nodes}, {"devices", cluster.devices()}})},
       {"ranks", result.ranks},
       {"simulated", forecast.outlined ? "outline" : "plan"},
       {"step_seconds", forecast.step_seconds},
       {"around_seconds", std::move(around)},
       {"tokens_per_second", forecast.tokens_per_second},
       {"model_tflops_per_device", result.model_tflops_per_device()},
       {"hardware_tflops_per_device", result.hardware_tflops_per_device()},
       {"bubble_fraction", result.bubble_fraction()},
       {"exposed_fraction", result.exposed_fraction()},
       {"peak_bytes", arenas_json(forecast.plan)},
       {"reserve_bytes", cluster.device.reserve.count},
       {"bytes_moved", std::move(moved)},
       {"rank_classes", std::move(ranks)},
       {"waterline", waterline_json(forecast)}});
}

std::string memory_line(const Forecast& forecast, const cluster::Cluster& cluster) {
  const plan::RankClass& fullest = plan::fullest_class(forecast.plan);
  std::string line;
  for (const plan::Tier tier : kTiers) {
    const base::Bytes arena = fullest.arena[static_cast<std::size_t>(tier)];
    if (arena.count == 0) continue;
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", plan::name_of(tier), base::to_string(arena));
    if (tier == plan::Tier::device) line += fmt::format(" of {}", base::to_string(cluster.device.memory - cluster.device.reserve));
  }
  return fmt::format("{} ({})", line, fullest.name);
}

void print_text(const Forecast& forecast, const cluster::Cluster& cluster, const config::Run& run) {
  const executor::sim::Result& result = forecast.result;
  fmt::print("{}\n{}\non {}: {} node{} of {} x {} ({})\n\n", train::describe(run), forecast.plan.strategy, cluster.name, cluster.nodes,
             cluster.nodes == 1 ? "" : "s", cluster.devices_per_node, cluster.device.name, cluster.origin);
  fmt::print("  step         {}, {} tokens/s\n", seconds_text(forecast.step_seconds), count_text(forecast.tokens_per_second));
  fmt::print("  TFLOP/s      {:.4g} of the model, {:.4g} with what is made again, a device\n", result.model_tflops_per_device(),
             result.hardware_tflops_per_device());
  double around = 0.0;
  for (const executor::Surrounding& each : forecast.around) around += each.seconds;
  const double passes = result.seconds / (result.seconds + around);
  const double waiting = passes * result.bubble_fraction();
  const double exposed = passes * result.exposed_fraction() + (1.0 - passes);
  fmt::print("  time         {:.1f}% computing, {:.1f}% only moving data, {:.1f}% waiting\n", 100.0 * (1.0 - waiting - exposed),
             100.0 * exposed, 100.0 * waiting);
  if (around > 0.0) {
    fmt::print("  rows         {} to bring those of the token table, {} to take them back\n", seconds_text(forecast.around.front().seconds),
               seconds_text(forecast.around.back().seconds));
  }
  fmt::print("  memory       {}\n", memory_line(forecast, cluster));
  std::string moved;
  for (std::size_t link = 0; link < executor::sim::kLinkNames.size(); ++link) {
    if (result.bytes[link] > 0.0)
      moved += fmt::format("{}{} {}B", moved.empty() ? "" : ", ", executor::sim::kLinkNames[link], count_text(result.bytes[link]));
  }
  fmt::print("  moved        {}\n", moved.empty() ? "nothing" : moved + " a step, all ranks");
  if (result.times.size() > 1) {
    fmt::print("\n  {:<24} {:>7} {:>10} {:>10} {:>10}\n", "ranks", "", "computing", "moving", "waiting");
    for (const std::size_t index : spread(result.times.size(), kShownClasses)) {
      const RankTimes& times = result.times[index];
      fmt::print("  {:<24} {:>7} {:>9.1f}% {:>9.1f}% {:>9.1f}%\n", times.name, times.ranks, 100.0 * times.computing / result.seconds,
                 100.0 * times.exposed / result.seconds, 100.0 * times.waiting / result.seconds);
    }
  }
  fmt::print("\n{}\n", forecast.outlined ? "simulated from an outline of the plan: ranks that behave alike once, memory without gaps"
                                         : "simulated from the plan that training would run");
}

void write_trace(io::FileSystem& file_system, const std::string& path, const Forecast& forecast) {
  const executor::sim::Result& result = forecast.result;
  std::string text;
  observe::ChromeTrace trace([&](std::string_view piece) { text += piece; }, 0.0);
  for (const std::size_t index : spread(result.times.size(), kTracedRanks)) {
    const RankTimes& times = result.times[index];
    const auto process = static_cast<std::int64_t>(times.first_rank);
    trace.name_process(process, fmt::format("{}: {} rank{}", times.name, times.ranks, times.ranks == 1 ? "" : "s"));
    for (std::size_t lane = 0; lane < times.lanes.size(); ++lane)
      trace.name_thread({process, static_cast<std::int64_t>(lane)}, plan::name_of(times.lanes[lane]));
    const auto lane_around = static_cast<std::int64_t>(times.lanes.size());
    if (!forecast.around.empty()) trace.name_thread({process, lane_around}, "before and behind the step");
    for (const executor::Surrounding& around : forecast.around) {
      trace.write({.name = around.program,
                   .category = "program",
                   .lane = {process, lane_around},
                   .begin = around.before ? -around.seconds : result.seconds,
                   .seconds = around.seconds,
                   .args = {}});
    }
    for (const executor::sim::Span& span : times.spans) {
      trace.write({.name = result.routines[span.routine],
                   .category = std::string(plan::name_of(times.lanes[span.lane])),
                   .lane = {process, static_cast<std::int64_t>(span.lane)},
                   .begin = span.begin,
                   .seconds = span.end - span.begin,
                   .args = {{"micro_batch", Json(span.micro_batch)}}});
    }
  }
  trace.finish();
  io::replace_file(file_system, path, io::as_bytes(text));
}

void write_page(io::FileSystem& file_system, const std::string& path, const Forecast& forecast, const cluster::Cluster& cluster) {
  const executor::sim::Result& result = forecast.result;
  const DrawnPlan drawn = drawn_plan(forecast);
  report::Page page{.plan = drawn.plan,
                    .outlined = drawn.outlined,
                    .capacity = cluster.device.memory,
                    .reserve = cluster.device.reserve,
                    .times = drawn.times,
                    .figures = {{"fits", forecast.fits() ? "yes" : forecast.reason},
                                {"step", seconds_text(forecast.step_seconds)},
                                {"tokens/s", count_text(forecast.tokens_per_second)},
                                {"TFLOP/s a device", fmt::format("{:.4g}", result.model_tflops_per_device())},
                                {"waiting", fmt::format("{:.1f}%", 100.0 * result.bubble_fraction())},
                                {"only moving data", fmt::format("{:.1f}%", 100.0 * result.exposed_fraction())},
                                {"cluster", fmt::format("{} x {} ({})", cluster.nodes, cluster.name, cluster.origin)}},
                    .tables = {}};
  if (!forecast.around.empty()) {
    page.figures.emplace_back("rows of the token table",
                              fmt::format("{} before the step, {} behind it, both in it", seconds_text(forecast.around.front().seconds),
                                          seconds_text(forecast.around.back().seconds)));
  }
  io::replace_file(file_system, path, io::as_bytes(report::page_html(page)));
}

executor::sim::Straggler straggler_of(const std::string& text) {
  executor::sim::Straggler straggler;
  const std::size_t colon = text.find(':');
  try {
    std::size_t end = 0;
    straggler.rank = std::stoi(text.substr(0, colon), &end);
    if (colon != std::string::npos && end == colon) {
      straggler.factor = std::stod(text.substr(colon + 1), &end);
      if (colon + 1 + end == text.size()) return straggler;
    }
  } catch (const std::exception&) {  // said below
  }
  base::bad_input("--slow is \"{}\", expected a rank and how many times as long it takes, as 3:1.5", text);
}

// A guess tells strategies apart, but not how long a step takes.
void require_measured(io::FileSystem& file_system, const std::string& name) {
  if (name != "this" || train::calibrated_machine(file_system)) return;
  base::bad_input(
      "--cluster is \"this\", but this machine was not measured: there is no {}; run `plimsoll calibrate` (under two minutes), "
      "or name a preset: {}",
      train::calibration_path().string(), fmt::join(cluster::preset_names(), ", "));
}

}  // namespace

void simulate_command(const SimulateOptions& options) {
  io::PosixFileSystem file_system;
  const config::Run given = read_run(file_system, options.run);
  require_measured(file_system, options.cluster);
  const config::Run run = options.cluster == "this" ? train::without_reserve(given, train::data_to_come(file_system, given), false) : given;
  const cluster::Cluster cluster = train::open_cluster(file_system, options.cluster, run);
  train::ForecastOptions asked{.schedule = train::schedule_of(file_system, run), .jitter = options.jitter, .seed = options.seed};
  for (const std::string& slow : options.slow) asked.stragglers.push_back(straggler_of(slow));
  asked.spans = options.run.json || !options.trace.empty() || !options.html.empty();
  const Forecast forecast = train::forecast(run, cluster, asked);
  if (!options.trace.empty()) write_trace(file_system, options.trace, forecast);
  if (!options.html.empty()) write_page(file_system, options.html, forecast, cluster);
  if (options.run.json) {
    fmt::print("{}\n", base::write_json(to_json(forecast, cluster), base::JsonLayout::pretty));
    return;
  }
  print_text(forecast, cluster, run);
  if (!forecast.fits()) base::not_legal("does not fit: {}", forecast.reason);
}

}  // namespace plimsoll::cli
