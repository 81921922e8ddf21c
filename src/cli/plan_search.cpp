#include "cli/plan_search.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/plan_outcome.h"
#include "cli/say.h"
#include "cli/strategy_json.h"
#include "io/files.h"
#include "observe/terminal.h"
#include "plan/waterline.h"
#include "train/planning.h"
#include "train/setup.h"
#include "train/this_machine.h"

namespace plimsoll::cli {

namespace {

using base::Bytes;
using base::Json;

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kVerdictPasses = 3'000;     // the same of what lies beside the best
constexpr std::int64_t kSimulatedPasses = 12'000;  // of blocks in all steps that are simulated, for those behind the best
constexpr std::size_t kAlways = 3;                 // rows that are, however many passes they have
constexpr double kCloseCall = 1.1;                 // of a row's estimate, what the simulator is asked about
constexpr std::size_t kCloseCalls = 4;             // beside each row
constexpr double kFaster = 0.995;                  // of a row's time, what takes its place
constexpr std::int64_t kMostBuckets = 20000;
constexpr std::int64_t kMostPasses = 1500;  // of blocks in a step, for what is lowered more than once
constexpr std::int64_t kMostNodes = 1 << 20;
constexpr std::size_t kReasonsInWords = 3;
constexpr std::size_t kMostPlans = 16;  // that are made to see whether they fit to the byte
constexpr double kTera = 1e12;
constexpr double kDay = 86400.0;

// The best candidate of each division of the ranks into axes.
std::vector<Candidate> best_of_meshes(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> rows;
  for (const Candidate& candidate : candidates) {
    const strategy::Strategy& strategy = candidate.choice.strategy;
    const bool known = std::any_of(rows.begin(), rows.end(), [&](const Candidate& row) {
      return row.choice.strategy.data == strategy.data && row.choice.strategy.tensor == strategy.tensor &&
             row.choice.strategy.pipe == strategy.pipe;
    });
    if (!known && rows.size() < kRows) rows.push_back(candidate);
  }
  return rows;
}

// Where the bytes of a plan's fullest rank are; what is of no kind of its own counts as working memory.
void take_memory(const plan::RankClass& rank_class, planner::Memory& memory) {
  const Bytes arena = rank_class.arena[static_cast<std::size_t>(plan::Tier::device)];
  memory.host = rank_class.arena[static_cast<std::size_t>(plan::Tier::host)];
  memory.disk = rank_class.arena[static_cast<std::size_t>(plan::Tier::disk)];
  if (rank_class.buffers.empty()) {  // an outline has the sum alone
    const double scale = static_cast<double>(arena.count) / static_cast<double>(std::max<std::int64_t>(1, memory.device().count));
    for (Bytes* part : {&memory.weights, &memory.gradients, &memory.optimizer, &memory.activations})
      *part = Bytes{static_cast<std::int64_t>(scale * static_cast<double>(part->count))};
  } else {
    const plan::Waterline line = plan::waterline(rank_class, 0, plan::Tier::device);
    memory.weights = memory.gradients = memory.optimizer = memory.activations = {};
    for (const auto& [kind, bytes] : plan::by_kind(rank_class, 0, plan::Tier::device, line.peak_call)) {
      if (kind == plan::BufferKind::parameter) memory.weights += bytes;
      if (kind == plan::BufferKind::gradient) memory.gradients += bytes;
      if (kind == plan::BufferKind::state) memory.optimizer += bytes;
      if (kind == plan::BufferKind::activation) memory.activations += bytes;
    }
  }
  memory.working = arena - (memory.weights + memory.gradients + memory.optimizer + memory.activations);
}

// The simulator's word on one row; nullopt where its plan does not fit after all.
std::optional<Simulated> simulate_row(const Outcome& outcome, Candidate& row) {
  std::optional<train::Forecast> made;
  try {
    made = train::forecast(train::decided(outcome.run, row.choice), outcome.cluster);
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return std::nullopt;  // what is kept could not be fitted to the memory
  }
  const train::Forecast& forecast = *made;
  const plan::RankClass& fullest = plan::fullest_class(forecast.plan);
  if (!forecast.fits() || fullest.arena[static_cast<std::size_t>(plan::Tier::device)] > outcome.problem.device) return std::nullopt;
  row.estimate.step_seconds = forecast.step_seconds;
  row.estimate.bubble = forecast.result.bubble_fraction();
  take_memory(fullest, row.estimate.memory);
  Simulated simulated{.exposed = forecast.result.exposed_fraction(), .moved = {}};
  constexpr std::array<std::string_view, executor::sim::kLinkClasses> kLinks{"inside", "across", "host", "disk"};
  for (std::size_t link = 0; link < kLinks.size(); ++link) simulated.moved.emplace_back(kLinks[link], forecast.result.bytes[link]);
  return simulated;
}

// What is fitted to the memory is lowered a dozen times until it fits, and what lives elsewhere is updated bucket by bucket: of large
// models the estimate has to do.
bool is_quick(const Outcome& outcome, const Candidate& candidate) {
  const planner::Choice& choice = candidate.choice;
  const Bytes elsewhere = candidate.estimate.memory.host + candidate.estimate.memory.disk;
  if (elsewhere.count / std::max<std::int64_t>(1, choice.strategy.bucket.count) > kMostBuckets) return false;
  if (choice.strategy.recompute != strategy::Recompute::optimal) return true;
  return outcome.problem.layers * choice.micro_batches(outcome.problem) * choice.strategy.tensor <= kMostPasses;
}

// Of blocks, in all lowerings that simulating the choice takes.
std::int64_t passes_of(const Outcome& outcome, const planner::Choice& choice) {
  const std::int64_t lowerings = choice.strategy.recompute == strategy::Recompute::optimal ? 12 : 1;
  return lowerings * outcome.problem.layers * choice.micro_batches(outcome.problem) * choice.strategy.tensor;
}

bool same_mesh(const planner::Choice& a, const planner::Choice& b) {
  return a.strategy.data == b.strategy.data && a.strategy.tensor == b.strategy.tensor && a.strategy.pipe == b.strategy.pipe;
}

// Rows are simulated to the instruction and put in order again, as far as that is quick. An estimate is not exact: the simulator also
// decides between a row and what lies beside it and is estimated to take about as long.
class Rows {
 public:
  Rows(Outcome& outcome, planner::Estimator& estimator) : outcome_(outcome), estimator_(estimator) {
    for (const Candidate& candidate : outcome.rows) rows_.push_back({candidate, candidate});
  }

  // Gives the best row as it was estimated.
  Candidate simulate() {
    for (std::size_t index = 0; index < rows_.size() && (index < kAlways || has_time());) index += simulate_at(index) ? 1 : 0;
    sort();
    for (std::size_t tried = 0; !rows_[0].final && tried < outcome_.rows.size(); ++tried) {
      simulate_at(0);
      sort();
    }
    for (Row& row : rows_) {
      while (row.simulated && has_time() && improve(row)) {
      }
    }
    sort();
    outcome_.rows.clear();
    for (const Row& row : rows_) {
      outcome_.rows.push_back(row.shown);
      outcome_.simulated.push_back(row.simulated);
    }
    return rows_[0].estimated;
  }

 private:
  struct Row {
    Candidate shown;
    Candidate estimated;
    std::optional<Simulated> simulated = std::nullopt;
    bool final = false;
  };

  // Counted rather than measured, since ranks that each plan must come to the same end.
  bool has_time() const { return passes_ < kSimulatedPasses; }
  std::optional<Simulated> simulated(Candidate& candidate) {
    passes_ += passes_of(outcome_, candidate.choice);
    return simulate_row(outcome_, candidate);
  }

  // False where the row does not fit after all and has gone.
  bool simulate_at(std::size_t index) {
    Row& row = rows_[index];
    row.final = true;
    if (!is_quick(outcome_, row.shown)) return true;
    row.simulated = simulated(row.shown);
    if (!row.simulated && rows_.size() > 1) {
      rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(index));
      return false;
    }
    return true;
  }

  // True where something beside the row is faster, and the row has become that.
  bool improve(Row& row) {
    std::vector<Candidate> beside;
    for (planner::Neighbour& neighbour : planner::neighbours(outcome_.problem, outcome_.space, row.shown.choice)) {
      if (!same_mesh(neighbour.choice, row.shown.choice)) continue;
      const planner::Estimate estimate = estimator_.evaluate(neighbour.choice);
      if (estimate.fits() && estimate.step_seconds < kCloseCall * row.estimated.estimate.step_seconds)
        beside.push_back({std::move(neighbour.choice), estimate});
    }
    std::stable_sort(beside.begin(), beside.end(),
                     [](const Candidate& a, const Candidate& b) { return a.estimate.step_seconds < b.estimate.step_seconds; });
    if (beside.size() > kCloseCalls) beside.resize(kCloseCalls);
    for (const Candidate& candidate : beside) {
      if (!has_time() || !is_quick(outcome_, candidate)) continue;
      Row other{candidate, candidate, std::nullopt, true};
      other.simulated = simulated(other.shown);
      if (!other.simulated || other.shown.estimate.step_seconds >= kFaster * row.shown.estimate.step_seconds) continue;
      row = std::move(other);
      return true;
    }
    return false;
  }

  void sort() {
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const Row& a, const Row& b) { return a.shown.estimate.step_seconds < b.shown.estimate.step_seconds; });
  }

  Outcome& outcome_;
  planner::Estimator& estimator_;
  std::vector<Row> rows_;
  std::int64_t passes_ = 0;
};

// Of what lies beside the best, the most promising are simulated too, as far as that is quick; the others stay estimated, in the measure of
// the best.
//
// Gives the fastest of them as it was estimated where it beats the best after all; it is then the first row.
std::optional<Candidate> simulate_verdicts(Outcome& outcome, const Candidate& best) {
  std::optional<Candidate> better;
  std::optional<Candidate> shown;
  std::optional<Simulated> word;
  const double seconds = outcome.rows[0].estimate.step_seconds;
  std::vector<planner::Verdict*> order;
  for (planner::Verdict& verdict : outcome.verdicts) order.push_back(&verdict);
  std::stable_sort(order.begin(), order.end(), [](const planner::Verdict* a, const planner::Verdict* b) {
    return a->candidate.estimate.step_seconds < b->candidate.estimate.step_seconds;
  });
  std::int64_t passes = 0;
  for (planner::Verdict* verdict : order) {
    Candidate& candidate = verdict->candidate;
    if (!candidate.estimate.fits()) continue;
    const planner::Estimate estimated = candidate.estimate;
    candidate.estimate.step_seconds *= seconds / best.estimate.step_seconds;
    if (!outcome.simulated[0] || !is_quick(outcome, candidate)) continue;
    passes += passes_of(outcome, candidate.choice);
    if (passes > kVerdictPasses) continue;
    Candidate simulated = candidate;
    const std::optional<Simulated> found = simulate_row(outcome, simulated);
    if (!found) continue;
    if (simulated.estimate.step_seconds < kFaster * (shown ? shown->estimate.step_seconds : seconds)) {
      better = {candidate.choice, estimated};
      shown = simulated;
      word = found;
    }
    candidate = simulated;
    verdict->simulated = true;
    verdict->reason = planner::why_slower(estimated, best.estimate, simulated.estimate.step_seconds / seconds);
  }
  if (!better) return better;
  for (std::size_t index = outcome.rows.size(); index-- > 0;) {
    if (!same_mesh(outcome.rows[index].choice, shown->choice)) continue;
    outcome.rows.erase(outcome.rows.begin() + static_cast<std::ptrdiff_t>(index));
    outcome.simulated.erase(outcome.simulated.begin() + static_cast<std::ptrdiff_t>(index));
  }
  outcome.rows.insert(outcome.rows.begin(), *shown);
  outcome.simulated.insert(outcome.simulated.begin(), word);
  return better;
}

// What was only estimated is marked as rows are.
std::string reason_text(const planner::Verdict& verdict) {
  return (verdict.candidate.estimate.fits() && !verdict.simulated ? "~" : "") + verdict.reason;
}

Outcome search_for(const config::Run& run, cluster::Cluster cluster, std::int64_t ranks, const PlanOptions& options) {
  const Problem problem = train::planning_problem(run, cluster, ranks);
  Outcome outcome{.run = run, .cluster = std::move(cluster), .problem = problem, .space = {}, .found = {}, .rows = {}, .verdicts = {}};
  outcome.space = train::planning_space(run, outcome.problem);
  planner::Estimator estimator(outcome.problem);
  const auto start = std::chrono::steady_clock::now();
  const bool shows = observe::detect_terminal(STDERR_FILENO).interactive;
  planner::SearchOptions search{.prune = options.planner != "brute", .meshes = kRows};
  search.stop = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > options.time_limit; };
  search.progress = [&](const planner::Progress& progress) {
    if (shows) say("\r{} shapes, {} bounded, {} evaluated ", progress.shapes, progress.bounded, progress.evaluated);
  };
  outcome.found = planner::search(estimator, outcome.space, search);
  if (shows) say("\r\x1b[K");
  if (outcome.found.candidates.empty()) train::refuse(run, outcome.cluster, outcome.problem, outcome.found);
  outcome.rows = best_of_meshes(outcome.found.candidates);
  std::optional<Candidate> best = Rows(outcome, estimator).simulate();
  for (std::size_t tried = 0; best && tried < kCloseCalls; ++tried) {
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

Json whole_run_json(const planner::WholeRun& whole) {
  return Json::object({{"steps", whole.steps},
                       {"days", whole.wall_seconds / kDay},
                       {"device_hours", whole.device_hours},
                       {"kwh", whole.kwh},
                       {"kg_co2", whole.kg_co2},
                       {"money", whole.money},
                       {"effective_share", whole.effective_share},
                       {"checkpoint_seconds", whole.save_every_seconds}});
}

Json outcome_json(const Outcome& outcome, const PlanOptions& options) {
  Json candidates = Json::array();
  for (std::size_t index = 0; index < outcome.rows.size(); ++index) {
    Json candidate = candidate_json(outcome, outcome.rows[index]);
    candidate.set("simulated", Json(outcome.simulated[index].has_value()));
    if (const std::optional<Simulated>& simulated = outcome.simulated[index]) {
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
  Json json = Json::object({{"cluster", outcome.cluster.name},
                            {"origin", outcome.cluster.origin},
                            {"ranks", outcome.problem.ranks},
                            {"planner", options.planner},
                            {"complete", outcome.found.complete},
                            {"shapes", outcome.found.progress.shapes},
                            {"evaluated", outcome.found.progress.evaluated},
                            {"candidates", std::move(candidates)},
                            {"rejected", std::move(rejected)}});
  if (outcome.named) json.set("named", to_json(*outcome.named));
  if (const auto whole = whole_run_of(outcome, options)) json.set("whole_run", whole_run_json(*whole));
  return json;
}

std::string whole_run_text(const planner::WholeRun& whole, const PlanOptions& options) {
  std::string text = fmt::format("\n{} tokens: {} steps, {:.1f} days, {} device-hours", count_text(options.tokens), whole.steps,
                                 whole.wall_seconds / kDay, count_text(whole.device_hours));
  if (whole.kwh > 0.0) text += fmt::format(", {:.4g} MWh, {:.4g} t CO2", whole.kwh / 1e3, whole.kg_co2 / 1e3);
  if (whole.money > 0.0) text += fmt::format(", costs {}", count_text(whole.money));
  if (whole.save_every_seconds > 0.0) {
    text += fmt::format("\nwith {:.6g} h between failures of a device: save every {:.3g} min; {:.1f}% of the time is training",
                        options.mtbf, whole.save_every_seconds / 60.0, 100.0 * whole.effective_share);
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
  for (std::size_t index = 0; index < outcome.rows.size(); ++index) {
    const planner::Estimate& estimate = outcome.rows[index].estimate;
    const bool simulated = outcome.simulated[index].has_value();
    all_simulated = all_simulated && simulated;
    text += fmt::format("{:>10} {:>10} {:>9.1f} {:>6.1f}% {:>10}  {}\n", (simulated ? "" : "~") + seconds_text(estimate.step_seconds),
                        count_text(tokens_per_step(problem) / estimate.step_seconds), model_tflops(problem, estimate.step_seconds),
                        100.0 * estimate.bubble, base::to_string(estimate.memory.device()), planner::describe(outcome.rows[index].choice));
  }
  for (const planner::Verdict& verdict : outcome.verdicts)
    all_simulated = all_simulated && (verdict.simulated || !verdict.candidate.estimate.fits());
  if (!all_simulated) text += "~ estimated; the others were simulated to the instruction\n";
  text += "\nbeside the best:\n";
  std::size_t widest = 0;
  for (const planner::Verdict& verdict : outcome.verdicts) widest = std::max(widest, verdict.what.size());
  for (const planner::Verdict& verdict : outcome.verdicts)
    text += fmt::format("  {:<{}}  {}\n", verdict.what, widest, reason_text(verdict));
  if (outcome.named) text += text_of(*outcome.named, outcome.rows[0].estimate.step_seconds);
  if (const auto whole = whole_run_of(outcome, options)) text += whole_run_text(*whole, options);
  if (!outcome.found.complete) text += "\nthe search was cut off: there may be a better one (--time-limit)\n";
  return text;
}

}  // namespace

namespace {

void say_largest(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, bool json) {
  const std::optional<model::Model> largest = train::largest_model(run, cluster, ranks);
  if (!largest) {
    base::not_legal("{}: no model of these proportions, however small, can be dealt out to {} ranks of \"{}\" and fits them", run.name,
                    ranks, cluster.name);
  }
  const std::int64_t parameters = model::parameter_count(*largest);
  if (json) {
    fmt::print("{}\n", base::write_json(Json::object({{"parameters", parameters},
                                                      {"layers", largest->layers},
                                                      {"width", largest->width},
                                                      {"heads", largest->heads},
                                                      {"ffn", largest->ffn}}),
                                        base::JsonLayout::pretty));
    return;
  }
  fmt::print("{} ranks of \"{}\" can train a model of these proportions with up to {} parameters: {} layers, width {}, {} heads\n", ranks,
             cluster.name, count_text(static_cast<double>(parameters)), largest->layers, largest->width, largest->heads);
}

void say_smallest(const config::Run& run, const cluster::Cluster& cluster, bool json) {
  const std::int64_t nodes = train::fewest_nodes(run, cluster, kMostNodes);
  if (nodes == 0) base::not_legal("{}: no number of nodes of \"{}\" up to {} holds the model", run.name, cluster.name, kMostNodes);
  const std::int64_t devices = nodes * cluster.devices_per_node;
  if (json) {
    fmt::print("{}\n", base::write_json(Json::object({{"nodes", nodes}, {"devices", devices}}), base::JsonLayout::pretty));
    return;
  }
  fmt::print("the model needs {} node{} of \"{}\", {} device{}\n", nodes, nodes == 1 ? "" : "s", cluster.name, devices,
             devices == 1 ? "" : "s");
}

}  // namespace

namespace {

// A limit of a processor's memory holds for arenas and what lies beside them. Rounded, since ranks that measure it must decide alike.
config::Run without_reserve(const config::Run& run) {
  config::Run within = run;
  if (run.limits.device.count == 0) return within;
  constexpr Bytes kRounding{16ll << 20};
  const Bytes reserve = train::capacity_of(run).reserve;
  if (run.limits.device <= reserve) {
    base::not_legal("{}: \"limits.device\" is {}, and the program alone takes {} beside what it trains; use a larger limit",
                    run.where("limits.device"), base::to_string(run.limits.device), base::to_string(reserve));
  }
  const Bytes rounded = base::round_up(reserve, kRounding);
  if (run.limits.device > rounded) within.limits.device = run.limits.device - rounded;
  return within;
}

}  // namespace

void plan_search(io::FileSystem& file_system, const config::Run& given, const PlanOptions& options) {
  const std::string name = options.cluster.empty() ? "this" : options.cluster;
  const config::Run run = options.cluster.empty() ? without_reserve(given) : given;
  cluster::Cluster cluster = train::open_cluster(file_system, name, run, options.run.ranks);
  const std::int64_t ranks = options.run.ranks > 0 ? options.run.ranks : cluster.devices();
  cluster = cluster::placed(cluster, ranks);
  if (options.largest) return say_largest(run, cluster, ranks, options.run.json);
  if (options.smallest) return say_smallest(run, cluster, options.run.json);
  const Outcome outcome = search_for(run, std::move(cluster), ranks, options);
  if (!options.html.empty()) write_page(file_system, outcome, options);
  if (options.run.json) {
    fmt::print("{}\n", base::write_json(outcome_json(outcome, options), base::JsonLayout::pretty));
  } else {
    fmt::print("{}", text_of(outcome, options));
  }
}

namespace {

// Estimates leave out gaps between buffers and kernels' scratch; a plan is exact.
bool fits_exactly(const config::Run& run) {
  try {
    const plan::Plan plan = train::plan_session(train::session_options(run, {.evaluate = !run.data.valid.empty()}));
    return !train::why_too_large(plan, train::capacity_of(run));
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return false;
  }
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
  const config::Run within = without_reserve(run);
  const Outcome outcome = search_for(within, train::open_cluster(file_system, "this", run, ranks), ranks, options);
  // In the order of the simulator first, then of the estimates.
  std::vector<Candidate> candidates = outcome.rows;
  candidates.insert(candidates.end(), outcome.found.candidates.begin(), outcome.found.candidates.end());
  const std::size_t most = std::min(kMostPlans, candidates.size());
  std::size_t chosen = 0;
  while (chosen < most && !fits_exactly(train::decided(run, candidates[chosen].choice))) ++chosen;
  const Candidate* best = &candidates[chosen < most ? chosen : 0];
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
