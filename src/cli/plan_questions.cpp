#include "cli/plan_questions.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/plan_outcome.h"
#include "cli/strategy_json.h"
#include "families/families.h"
#include "plan/waterline.h"
#include "train/foresight/forecast.h"
#include "train/foresight/planning.h"

namespace plimsoll::cli {

namespace {

using base::Json;

constexpr std::int64_t kMostNodes = 1 << 20;
constexpr std::int64_t kDivisions = 4;         // of the ranks, that are looked at
constexpr std::int64_t kMostPieces = 100'000;  // of what lives elsewhere, that are simulated
constexpr std::size_t kSimulated = 4;          // strategies of a model, at most
constexpr std::int64_t kAttempts = 10;         // at a model whose simulation keeps the pace
constexpr std::int64_t kClose = 4;             // of these, at the next smaller model; then at a sixteenth smaller

// What every question takes.
constexpr std::string_view kTakenAlways[] = {"run", "--set", "--deepspeed", "--json"};

struct Question {
  std::string_view name;
  std::vector<std::string_view> takes;
};

const Question& question_of(const PlanOptions& options, const config::Run& run) {
  static const Question kPasses{"--passes", {"--passes", "--full", "--ranks"}};
  static const Question kSchedule{"--schedule", {"--schedule", "--svg", "--out", "--ranks"}};
  static const Question kLargest{"--largest", {"--largest", "--cluster", "--floor", "--longest-step", "--time-limit", "--ranks"}};
  static const Question kSmallest{"--smallest", {"--smallest", "--cluster"}};
  static const Question kSearch{"the search for a strategy",
                                {"--cluster", "--planner", "--time-limit", "--tokens", "--price", "--co2", "--mtbf", "--storage",
                                 "--restart", "--out", "--html", "--full", "--ranks"}};
  static const Question kPlan{"the plan of one strategy", {"--out", "--html", "--full", "--ranks"}};
  if (options.passes) return kPasses;
  if (!options.schedules.empty()) return kSchedule;
  if (options.largest) return kLargest;
  if (options.smallest) return kSmallest;
  return !options.cluster.empty() || run.strategy_auto ? kSearch : kPlan;
}

void require_one_question(const PlanOptions& options, const config::Run& run) {
  if (options.passes && (!options.schedules.empty() || !options.cluster.empty() || run.strategy_auto)) {
    base::bad_input(
        "{}: --passes shows how one strategy becomes a plan; give the run a \"strategy\" and leave out --cluster and --schedule", run.name);
  }
  if (!options.schedules.empty() && !options.cluster.empty()) {
    base::bad_input(
        "--schedule draws schedules with costs of their own, and --cluster prices strategies by a cluster's; give one (a run's "
        "\"strategy.schedule\" is priced by `plimsoll simulate --cluster {}`)",
        options.cluster);
  }
  if (options.largest && options.smallest) {
    base::bad_input(
        "--largest and --smallest are two questions: how large a model the cluster trains, how many nodes the model needs; give one");
  }
  const bool of_cluster = !options.cluster.empty() || run.strategy_auto || options.passes || !options.schedules.empty();
  if (!of_cluster && (options.largest || options.smallest || options.given.contains("--tokens") || options.given.contains("--mtbf") ||
                      options.given.contains("--planner") || options.given.contains("--time-limit"))) {
    base::bad_input(
        "{}: --largest, --smallest, --tokens, --mtbf, --planner and --time-limit are questions about a cluster; give --cluster NAME (this: "
        "this machine)",
        run.name);
  }
}

// A strategy with which the model trains at the pace: by the simulator's word, or the estimate's where asking the simulator takes long.
struct Witness {
  planner::Choice choice;
  planner::Problem problem;
  bool simulated = false;
  double step_seconds = 0.0;
  base::Bytes device{}, host{}, disk{};  // of the fullest rank
};

// What lives elsewhere is updated bucket by bucket, and what comes in tiles does so block by block.
bool has_few_pieces(const Candidate& candidate) {
  const base::Bytes elsewhere = candidate.estimate.memory.host + candidate.estimate.memory.disk;
  const auto pieces = [&](base::Bytes each) { return elsewhere.count / std::max<std::int64_t>(1, each.count); };
  const strategy::Strategy& strategy = candidate.choice.strategy;
  return pieces(strategy.bucket) <= kMostPieces && (strategy.tile.count == 0 || pieces(strategy.tile) <= kMostPieces);
}

// nullopt where the plan cannot be had.
std::optional<Witness> asked(const config::Run& run, const cluster::Cluster& cluster, const planner::Problem& problem,
                             const Candidate& candidate) {
  const planner::Choice& choice = candidate.choice;
  const planner::Memory& memory = candidate.estimate.memory;
  if (!has_few_pieces(candidate))
    return Witness{choice, problem, false, candidate.estimate.step_seconds, memory.device(), memory.host, memory.disk};
  train::ForecastOptions options;
  if (choice.strategy.recompute == strategy::Recompute::optimal && !choice.strategy.own_degrees()) options.outline = true;
  try {
    const train::Forecast forecast = train::forecast(train::decided(run, choice), cluster, options);
    if (!forecast.fits()) return std::nullopt;
    const auto& arena = plan::fullest_class(forecast.plan).arena;
    const auto of = [&](plan::Tier tier) { return arena[static_cast<std::size_t>(tier)]; };
    return Witness{choice, problem, true, forecast.step_seconds, of(plan::Tier::device), of(plan::Tier::host), of(plan::Tier::disk)};
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    return std::nullopt;
  }
}

// The first that keeps the pace of those estimated to be fastest; nullopt where none of a few does. What recompute chooses block by block
// is laid out a dozen times until it fits: its outline, without gaps between buffers, says as much about a size.
std::optional<Witness> witness_of(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, const train::Pace& pace,
                                  double time_limit) {
  planner::Problem problem = train::planning_problem(run, cluster, ranks);
  planner::Estimator estimator(problem);
  const auto start = std::chrono::steady_clock::now();
  planner::SearchOptions search{.meshes = kDivisions};
  const double longest = train::longest_step(run, cluster, problem, pace);
  search.within_seconds = longest;
  search.stop = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > time_limit; };
  const planner::Found found = planner::search(estimator, train::planning_space(run, problem), search);
  for (std::size_t index = 0; index < std::min(kSimulated, found.candidates.size()); ++index) {
    std::optional<Witness> witness = asked(run, cluster, problem, found.candidates[index]);
    if (witness && (longest <= 0.0 || witness->step_seconds <= longest)) return witness;
  }
  return std::nullopt;
}

Json largest_json(const model::Model& model, const Witness& witness) {
  const double seconds = witness.step_seconds;
  return Json::object(
      {{"parameters", families::parameter_count(model)},
       {"layers", model.layers},
       {"width", model.width},
       {"heads", model.heads},
       {"ffn", model.ffn},
       {"step_seconds", seconds},
       {"simulated", witness.simulated},
       {"tokens_per_second", tokens_per_step(witness.problem) / seconds},
       {"model_tflops_per_device", model_tflops(witness.problem, seconds)},
       {"strategy", planner::describe(witness.choice)},
       {"settings", strategy_json(witness.choice)},
       {"micro_batch", witness.choice.micro},
       {"peak_bytes", Json::object({{"device", witness.device.count}, {"host", witness.host.count}, {"disk", witness.disk.count}})}});
}

std::string largest_text(const model::Model& model, const cluster::Cluster& cluster, const Witness& witness) {
  const double seconds = witness.step_seconds;
  std::string text =
      fmt::format("{} rank{} of \"{}\" can train a model of these proportions with up to {} parameters: {} layers, width {}, {} heads\n",
                  witness.problem.ranks, witness.problem.ranks == 1 ? "" : "s", cluster.name,
                  count_text(static_cast<double>(families::parameter_count(model))), model.layers, model.width, model.heads);
  text += fmt::format("  step          {}, {} tokens/s, {:.1f} TFLOP/s a device ({})\n", seconds_text(seconds),
                      count_text(tokens_per_step(witness.problem) / seconds), model_tflops(witness.problem, seconds),
                      witness.simulated ? "simulated" : "estimated");
  text += fmt::format("  fullest rank  {} on the device", base::to_string(witness.device));
  if (witness.host.count > 0) text += fmt::format(", {} in the host's memory", base::to_string(witness.host));
  if (witness.disk.count > 0) text += fmt::format(", {} on disk", base::to_string(witness.disk));
  return text + fmt::format("\n  with          {}\n", planner::describe(witness.choice));
}

std::string pace_text(const train::Pace& pace) {
  std::string text = pace.share > 0.0 ? fmt::format("keeps the devices at {:g}% of their rate (--floor)", 100.0 * pace.share) : "";
  if (pace.step_seconds > 0.0)
    text += fmt::format("{}takes at most {} a step (--longest-step)", text.empty() ? "" : " and ", seconds_text(pace.step_seconds));
  return text.empty() ? "is of any speed" : text;
}

}  // namespace

void require_answers(const PlanOptions& options, const config::Run& run) {
  require_one_question(options, run);
  const Question& question = question_of(options, run);
  std::vector<std::string> unused;
  for (const std::string& name : options.given) {
    const auto is_it = [&](std::string_view each) { return each == name; };
    if (std::none_of(std::begin(kTakenAlways), std::end(kTakenAlways), is_it) &&
        std::none_of(question.takes.begin(), question.takes.end(), is_it))
      unused.push_back(name);
  }
  if (!unused.empty()) {
    base::bad_input("found {}, which {} has no answer to; expected none but --set, --deepspeed, --json, {}", fmt::join(unused, ", "),
                    question.name, fmt::join(question.takes, ", "));
  }
  if (options.full && options.run.json) base::bad_input("--full prints a plan in words, --json figures for programs; give one");
}

void say_largest(const config::Run& run, const cluster::Cluster& cluster, std::int64_t ranks, const PlanOptions& options) {
  const train::Pace pace{.share = options.floor, .step_seconds = options.longest_step};
  config::Run other = run;
  std::int64_t below = 0;
  for (std::int64_t attempt = 0; attempt < kAttempts; ++attempt) {
    const std::optional<model::Model> largest = train::largest_model(run, cluster, ranks, pace, below);
    if (!largest) break;
    other.model = *largest;
    // The estimate chose it; what is said is the simulator's where that is quick.
    if (const std::optional<Witness> witness = witness_of(other, cluster, ranks, pace, options.time_limit)) {
      if (options.run.json) return fmt::print("{}\n", base::write_json(largest_json(*largest, *witness), base::JsonLayout::pretty));
      return fmt::print("{}", largest_text(*largest, cluster, *witness));
    }
    below = attempt < kClose ? largest->heads : largest->heads - largest->heads / 16;
  }
  base::not_legal(
      "{}: no model of these proportions can be dealt out to {} ranks of \"{}\", fits them and {}; a lower --floor and a higher "
      "--longest-step allow slower ones",
      run.name, ranks, cluster.name, pace_text(pace));
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

}  // namespace plimsoll::cli
