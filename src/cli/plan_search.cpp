#include "cli/plan_search.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/plan_leanest.h"
#include "cli/plan_outcome.h"
#include "cli/plan_questions.h"
#include "cli/plan_rows.h"
#include "cli/say.h"
#include "cli/strategy_json.h"
#include "io/files.h"
#include "observe/terminal.h"
#include "plan/file.h"
#include "plan/print.h"
#include "train/foresight/planning.h"
#include "train/ranks.h"
#include "train/setup/setup.h"
#include "train/setup/this_machine.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;
using base::Json;

constexpr std::int64_t kRows = 8;
constexpr std::size_t kTurns = 4;  // turns in which something beside the best may take its place
constexpr std::size_t kReasonsInWords = 3;
constexpr int kSearches = 2;
constexpr std::size_t kMostPlans = 16;  // that are made to see whether they fit to the byte
constexpr double kDay = 86400.0;

// What was only estimated is marked as rows are: seconds, and bytes of what does not fit. Other reasons are exact.
bool is_estimated(const planner::Verdict& verdict) { return !verdict.simulated && verdict.candidate.estimate.step_seconds > 0.0; }

std::string reason_text(const planner::Verdict& verdict) { return (is_estimated(verdict) ? "~" : "") + verdict.reason; }

Outcome search_for(const config::Run& run, cluster::Cluster cluster, std::int64_t ranks, const PlanOptions& options) {
  const Problem problem = train::planning_problem(run, cluster, ranks);
  Outcome outcome{.run = run, .cluster = std::move(cluster), .problem = problem, .space = {}, .found = {}, .rows = {}, .verdicts = {}};
  outcome.space = train::planning_space(run, outcome.problem);
  planner::Estimator estimator(outcome.problem);
  const auto start = std::chrono::steady_clock::now();
  const bool shows = observe::detect_terminal(STDERR_FILENO).interactive;
  planner::SearchOptions search{.prune = options.planner != "brute", .near_misses = true, .meshes = kRows};
  search.stop = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options.time_limit; };
  search.progress = [&](const planner::Progress& progress) {
    if (shows) say("\r{} shapes, {} bounded, {} evaluated ", progress.shapes, progress.bounded, progress.evaluated);
  };
  outcome.found = planner::search(estimator, outcome.space, search);
  if (shows) say("\r\x1b[K");
  std::optional<Candidate> best = simulate_rows(outcome, estimator, kRows);
  const planner::Pins pins = train::pins_of(run);
  if (best) {
    if (const auto faster = simulate_steps(outcome, estimator, pins, *best)) best = faster;
  } else if (outcome.found.complete) {
    best = simulate_leanest(outcome, estimator, pins);
  }
  if (!best) train::refuse(run, outcome.cluster, outcome.problem, outcome.found);
  for (std::size_t tried = 0; best && tried < kTurns; ++tried) {
    outcome.verdicts = planner::explain(estimator, outcome.space, *best);
    best = simulate_verdicts(outcome, *best);
  }
  if (is_named(options.planner)) outcome.named = plan_named(options.planner, run, outcome.problem, outcome.cluster, outcome.rows[0].choice);
  return outcome;
}

Json candidate_json(const Outcome& outcome, const Candidate& candidate) {
  const planner::Estimate& estimate = candidate.estimate;
  const planner::Memory& memory = estimate.memory;
  Json json = Json::object({{"fits", estimate.fits()},
                            {"reason", estimate.fits() ? Json() : Json(estimate.reason)},
                            {"strategy", planner::describe(candidate.choice)},
                            {"settings", strategy_json(candidate.choice)},
                            {"micro_batch", candidate.choice.micro}});
  if (!candidate.choice.precision.empty()) json.set("precision", Json(candidate.choice.precision));
  if (estimate.step_seconds <= 0.0) return json;
  json.set("step_seconds", Json(estimate.step_seconds));
  json.set("tokens_per_second", Json(tokens_per_step(outcome.problem) / estimate.step_seconds));
  json.set("model_tflops_per_device", Json(model_tflops(outcome.problem, estimate.step_seconds)));
  json.set("hardware_tflops_per_device", Json(estimate.flops / estimate.step_seconds / kTera));
  json.set("bubble_fraction", Json(estimate.bubble));
  json.set("peak_bytes",
           Json::object(
               {{"fullest", Json::object({{"device", memory.device().count}, {"host", memory.host.count}, {"disk", memory.disk.count}})}}));
  json.set("device_bytes_by_kind", Json::object({{"parameter", memory.weights.count},
                                                 {"gradient", memory.gradients.count},
                                                 {"state", memory.optimizer.count},
                                                 {"activation", memory.activations.count},
                                                 {"frame", memory.working.count}}));
  return json;
}

Json whole_run_json(const Whole& whole, const PlanOptions& options) {
  const planner::WholeRun& run = whole.run;
  Json json = Json::object({});
  if (options.tokens > 0.0) {
    json = Json::object({{"steps", run.steps},
                         {"days", run.wall_seconds / kDay},
                         {"device_hours", run.device_hours},
                         {"kwh", run.kwh},
                         {"kg_co2", run.kg_co2},
                         {"money", run.money}});
  }
  json.set("effective_share", Json(run.effective_share));
  if (options.mtbf <= 0.0) return json;
  json.set("save_every_seconds", Json(run.save_every_seconds));
  json.set("save_seconds", Json(whole.prices.save_seconds));
  json.set("restart_seconds", Json(whole.prices.restart_seconds));
  json.set("checkpoint_bytes", Json(whole.checkpoint.count));
  json.set("storage_bytes_per_second", Json(whole.storage));
  json.set("storage_is", Json(std::string(whole.saved_to)));
  return json;
}

Json outcome_json(const Outcome& outcome, const PlanOptions& options) {
  Json candidates = Json::array();
  for (std::size_t index = 0; index < outcome.rows.size(); ++index) {
    Json candidate = candidate_json(outcome, outcome.rows[index]);
    candidate.set("simulated", Json(outcome.simulated[index].has_value()));
    if (const std::optional<Simulated>& simulated = outcome.simulated[index]) {
      candidate.set("simulated_from", Json(simulated->outlined ? "outline" : "plan"));
      candidate.set("exposed_fraction", Json(simulated->exposed));
      Json moved = Json::object();
      for (const auto& [link, bytes] : simulated->moved) moved.set(link, Json(bytes));
      candidate.set("bytes_moved", std::move(moved));
    }
    candidates.push(std::move(candidate));
  }
  Json rejected = Json::array();
  for (const planner::Verdict& verdict : outcome.verdicts) {
    Json entry = candidate_json(outcome, verdict.candidate);
    entry.set("instead", Json(verdict.what));
    entry.set("verdict", Json(verdict.reason));
    entry.set("simulated", Json(verdict.simulated));
    rejected.push(std::move(entry));
  }
  Json refused = Json::array();
  for (const Refused& each : outcome.refused) {
    refused.push(
        Json::object({{"strategy", planner::describe(each.choice)}, {"settings", strategy_json(each.choice)}, {"reason", each.reason}}));
  }
  Json json = Json::object({{"cluster", outcome.cluster.name},
                            {"origin", outcome.cluster.origin},
                            {"ranks", outcome.problem.ranks},
                            {"planner", options.planner},
                            {"complete", outcome.found.complete},
                            {"shapes", outcome.found.progress.shapes},
                            {"evaluated", outcome.found.progress.evaluated},
                            {"candidates", std::move(candidates)},
                            {"rejected", std::move(rejected)},
                            {"refused", std::move(refused)}});
  if (outcome.named) json.set("named", to_json(*outcome.named));
  if (const auto whole = whole_run_of(outcome, options)) json.set("whole_run", whole_run_json(*whole, options));
  return json;
}

std::string whole_run_text(const Whole& whole, const PlanOptions& options) {
  const planner::WholeRun& run = whole.run;
  std::string text;
  if (options.tokens > 0.0) {
    text += fmt::format("\n{} tokens: {} steps, {:.1f} days, {} device-hours", count_text(options.tokens), run.steps,
                        run.wall_seconds / kDay, count_text(run.device_hours));
    if (run.kwh > 0.0) text += fmt::format(", {:.4g} MWh, {:.4g} t CO2", run.kwh / 1e3, run.kg_co2 / 1e3);
    if (run.money > 0.0) text += fmt::format(", costs {}", count_text(run.money));
  }
  if (options.mtbf > 0.0) {
    text += fmt::format("\nwith {:.6g} h between failures of a device: save every {}; {:.1f}% of the time is training", options.mtbf,
                        seconds_text(run.save_every_seconds), 100.0 * run.effective_share);
    text +=
        fmt::format("\n  a save of {} takes {} at {}/s ({})", base::to_string(whole.checkpoint), seconds_text(whole.prices.save_seconds),
                    base::to_string(Bytes{static_cast<std::int64_t>(whole.storage)}), whole.saved_to);
    text += fmt::format("\n  a restart takes {} (--restart)", seconds_text(whole.prices.restart_seconds));
  }
  return text + "\n";
}

std::string text_of(const Outcome& outcome, const PlanOptions& options) {
  const Problem& problem = outcome.problem;
  std::string text =
      fmt::format("{} rank{} of \"{}\" ({}), {} of memory each, batch {} x {}\n\n", problem.ranks, problem.ranks == 1 ? "" : "s",
                  outcome.cluster.name, outcome.cluster.origin, base::to_string(problem.device), problem.global_batch, problem.sequence);
  text += fmt::format("{:>10} {:>10} {:>9} {:>7} {:>10}  {}\n", "step", "tokens/s", "TFLOP/s", "bubble", "device", "strategy");
  bool all_simulated = true;
  bool outlined = false;
  for (std::size_t index = 0; index < outcome.rows.size(); ++index) {
    const planner::Estimate& estimate = outcome.rows[index].estimate;
    const bool simulated = outcome.simulated[index].has_value();
    all_simulated = all_simulated && simulated;
    const bool of_outline = simulated && outcome.simulated[index]->outlined;
    outlined = outlined || of_outline;
    text += fmt::format("{:>10} {:>10} {:>9.1f} {:>6.1f}% {:>10}  {}\n",
                        std::string(!simulated   ? "~"
                                    : of_outline ? "+"
                                                 : "") +
                            seconds_text(estimate.step_seconds),
                        count_text(tokens_per_step(problem) / estimate.step_seconds), model_tflops(problem, estimate.step_seconds),
                        100.0 * estimate.bubble, base::to_string(estimate.memory.device()), planner::describe(outcome.rows[index].choice));
  }
  for (const planner::Verdict& verdict : outcome.verdicts) all_simulated = all_simulated && !is_estimated(verdict);
  if (!all_simulated) text += "~ estimated; the others were simulated to the instruction\n";
  if (outlined) text += "+ simulated from an outline, which leaves out gaps between buffers: its plan recomputes a little more\n";
  text += "\nbeside the best:\n";
  std::size_t widest = 0;
  for (const planner::Verdict& verdict : outcome.verdicts) widest = std::max(widest, verdict.what.size());
  for (const planner::Verdict& verdict : outcome.verdicts)
    text += fmt::format("  {:<{}}  {}\n", verdict.what, widest, reason_text(verdict));
  if (!outcome.refused.empty()) text += "\nestimated to be as good, but their plans cannot be used:\n";
  for (const Refused& each : outcome.refused) text += fmt::format("  {}: {}\n", planner::describe(each.choice), each.reason);
  if (outcome.named) text += text_of(*outcome.named, outcome.rows[0].estimate.step_seconds);
  if (const auto whole = whole_run_of(outcome, options)) text += whole_run_text(*whole, options);
  if (!outcome.found.complete) text += "\nthe search was cut off: there may be a better one (--time-limit)\n";
  return text;
}

}  // namespace

namespace {

config::Run within_limit(const config::Run& run, Bytes data_to_come) {
  return train::without_reserve(run, data_to_come, train::ranks_started() > 1);
}

// The plan of the best strategy, as training would run it.
plan::Plan plan_of_best(const Outcome& outcome) {
  return train::forecast(train::decided(outcome.run, outcome.rows[0].choice), outcome.cluster, {.outline = false}).plan;
}

}  // namespace

void plan_search(io::FileSystem& file_system, const config::Run& given, const PlanOptions& options) {
  const std::string name = options.cluster.empty() ? "this" : options.cluster;
  const config::Run run = name == "this" ? within_limit(given, train::data_to_come(file_system, given)) : given;
  cluster::Cluster cluster = train::open_cluster(file_system, name, run, options.run.ranks);
  const std::int64_t ranks = options.run.ranks > 0 ? options.run.ranks : cluster.devices();
  cluster = cluster::placed(cluster, ranks);
  if (options.largest) return say_largest(run, cluster, ranks, options);
  if (options.smallest) return say_smallest(run, cluster, options.run.json);
  const Outcome outcome = search_for(run, std::move(cluster), ranks, options);
  if (!options.html.empty()) write_page(file_system, outcome, options);
  if (!options.out.empty() || options.full) {
    const plan::Plan best = plan_of_best(outcome);
    if (!options.out.empty()) io::replace_file(file_system, options.out, io::as_bytes(plan::to_text(best) + "\n"));
    if (options.full) return fmt::print("{}", plan::to_string(best));
  }
  if (options.run.json) {
    fmt::print("{}\n", base::write_json(outcome_json(outcome, options), base::JsonLayout::pretty));
  } else {
    fmt::print("{}", text_of(outcome, options));
  }
}

namespace {

// Estimates leave out gaps between buffers and kernels' scratch; a plan is exact.
bool fits_exactly(const config::Run& run, Bytes data_to_come) {
  try {
    const train::Capacity capacity = train::capacity_of(run, data_to_come);
    const plan::Plan plan =
        train::plan_session(train::session_options(run, {.evaluate = !run.data.valid.empty(), .data_to_come = data_to_come}));
    return !train::why_too_large(plan, capacity);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return false;
  }
}

// The search itself takes memory too: how much is known behind it. False where that was not why nothing fitted.
bool took_more(config::Run& within, const config::Run& run, Bytes data_to_come) {
  constexpr Bytes kNext{1ll << 20};
  if (run.limits.device.count == 0) return false;
  const Bytes left = run.limits.device - train::capacity_of(run, data_to_come).reserve - kNext;
  if (left.count <= 0 || left >= within.limits.device) return false;
  within.limits.device = left;
  return true;
}

// In the order of the simulator first, then of the estimates.
std::optional<Candidate> first_that_fits(const Outcome& outcome, const config::Run& run, Bytes data_to_come) {
  std::vector<Candidate> candidates = outcome.rows;
  candidates.insert(candidates.end(), outcome.found.candidates.begin(), outcome.found.candidates.end());
  for (std::size_t index = 0; index < std::min(kMostPlans, candidates.size()); ++index) {
    if (fits_exactly(train::decided(run, candidates[index].choice), data_to_come)) return candidates[index];
  }
  return std::nullopt;
}

void require_precision(const config::Run& run) {
  if (run.precision_auto)
    base::bad_input(
        "{}: \"precision\" is \"auto\", which is chosen with the strategy; use \"strategy\": \"auto\" too, or one of f32, bf16, fp16, fp8",
        run.where("precision"));
}

}  // namespace

Decided decide_here(io::FileSystem& file_system, const config::Run& run, std::int64_t ranks) {
  if (!run.strategy_auto) {
    require_precision(run);
    return {.run = run, .words = ""};
  }
  ranks = std::max<std::int64_t>(1, ranks);
  const PlanOptions options;
  const Bytes data = train::data_to_come(file_system, run);
  config::Run within = within_limit(run, data);
  const cluster::Cluster here = train::open_cluster(file_system, "this", run, ranks);
  std::optional<Outcome> found;
  std::optional<Candidate> best;
  for (int search = 0; !best && search < kSearches; ++search) {
    if (search > 0 && !took_more(within, run, data)) break;
    found.emplace(search_for(within, here, ranks, options));
    best = first_that_fits(*found, run, data);
  }
  const Outcome& outcome = *found;
  if (!best) best = outcome.rows[0];
  const bool guessed = outcome.cluster.origin.starts_with("guessed");
  std::string words = fmt::format("planned for {} rank{} here: {}\n", ranks, ranks == 1 ? "" : "s", planner::describe(best->choice));
  words +=
      fmt::format("  {} of {} on a device; {} shapes bounded, {} strategies evaluated{}\n", base::to_string(best->estimate.memory.device()),
                  base::to_string(outcome.problem.device), outcome.found.progress.shapes, outcome.found.progress.evaluated,
                  guessed ? "; rates are guesses until `plimsoll calibrate` has measured" : "");
  const std::size_t reasons = best->choice == outcome.rows[0].choice ? std::min(kReasonsInWords, outcome.verdicts.size()) : 0;
  for (std::size_t index = 0; index < reasons; ++index)
    words += fmt::format("  not {}: {}\n", outcome.verdicts[index].what, reason_text(outcome.verdicts[index]));
  return {.run = train::decided(run, best->choice),
          .words = words,
          .json = base::write_json(outcome_json(outcome, options), base::JsonLayout::pretty) + "\n"};
}

}  // namespace plimsoll::cli
