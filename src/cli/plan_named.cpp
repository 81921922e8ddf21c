#include "cli/plan_named.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/strategy_json.h"
#include "planner/named/chain.h"
#include "strategy/stages.h"
#include "train/foresight/forecast.h"
#include "train/foresight/planning.h"

namespace plimsoll::cli {

namespace {

namespace named = planner::named;
using named::Answer;
using named::Chain;

constexpr std::array<std::string_view, 5> kNamed{"pipedream", "2bw", "piper", "flexflow", "alpa-inter"};
constexpr std::size_t kCoarse = 16;          // layers that Piper and Alpa look at
constexpr std::int64_t kMostDevices = 4096;  // for PipeDream, whose hierarchy keeps it small
constexpr std::int64_t kMostSmall = 128;     // for the others
constexpr std::int64_t kMostMicro = 16;
constexpr std::int64_t kMostSimulated = 256;  // devices, where every rank has a part of its own

Answer answer_of(const std::string& planner, const Chain& chain) {
  if (planner == "pipedream") return named::pipedream(chain);
  if (planner == "flexflow") return named::flexflow(chain);
  const Chain small = named::coarse(chain, kCoarse);
  Answer answer = planner == "piper" ? named::piper(small) : named::alpa_inter(small);
  answer.stages = named::refined(chain, small, std::move(answer.stages));
  return answer;
}

// Ours as the chain sees it: equal degrees in all stages; chunks and schedules are not in its terms, and neither are stages without a
// layer, since its first and last layers have the embedding and the head.
std::vector<named::Stage> stages_of(const planner::Choice& choice, std::int64_t layers) {
  std::vector<named::Stage> stages;
  std::size_t first = 0;
  for (const std::int64_t count : strategy::equal_layers(layers, choice.strategy.pipe)) {
    if (count == 0) continue;
    const std::size_t last = first + static_cast<std::size_t>(count);
    stages.push_back({.first = first,
                      .last = last,
                      .data = choice.strategy.data,
                      .tensor = choice.strategy.tensor,
                      .again = choice.strategy.recompute == strategy::Recompute::full});
    first = last;
  }
  return stages;
}

// The answer as a strategy. FlexFlow divides all devices anew for each block; only where it does so alike is there one.
std::optional<planner::Choice> choice_of(const std::string& planner, const Chain& chain, const std::vector<named::Stage>& stages) {
  const auto same_degrees = [&](const named::Stage& stage) {
    return stage.data == stages.front().data && stage.tensor == stages.front().tensor;
  };
  const bool alike = std::all_of(stages.begin(), stages.end(), same_degrees);
  const bool on_one_mesh = planner == "flexflow";
  if (on_one_mesh && !alike) return std::nullopt;
  planner::Choice choice{.strategy = {}, .micro = chain.micro};
  strategy::Strategy& strategy = choice.strategy;
  if (std::any_of(stages.begin(), stages.end(), [](const named::Stage& stage) { return stage.again; }))
    strategy.recompute = strategy::Recompute::full;
  if (alike) {
    strategy.data = stages.front().data;
    strategy.tensor = stages.front().tensor;
  }
  if (on_one_mesh || stages.size() == 1) return choice;
  strategy.pipe = static_cast<std::int64_t>(stages.size());
  strategy.schedule = planner == "pipedream" || planner == "2bw" ? planner : "1f1b";
  strategy.partition = strategy::StagePartition::listed;
  for (const named::Stage& stage : stages) {
    const auto blocks = static_cast<std::int64_t>(stage.last - stage.first);
    strategy.stages.push_back(alike ? strategy::Stage{.blocks = blocks}
                                    : strategy::Stage{.blocks = blocks, .data = stage.data, .tensor = stage.tensor});
  }
  return choice;
}

// On the simulator's clock, where the strategy can be run.
void simulate(NamedPlan& plan, const config::Run& run, const planner::Problem& problem, const cluster::Cluster& cluster) {
  if (!plan.choice) {
    plan.why_not_simulated = "it divides the devices anew from block to block, and a strategy has one division for each stage";
    return;
  }
  const strategy::Strategy& strategy = plan.choice->strategy;
  const std::int64_t replicas = strategy.pipelines();
  if (problem.global_batch % (plan.micro * replicas) != 0) {
    plan.why_not_simulated =
        fmt::format("a batch of {} is not a multiple of micro-batches of {} on {} replicas", problem.global_batch, plan.micro, replicas);
    return;
  }
  if (strategy.own_degrees() && problem.ranks > kMostSimulated) {
    plan.why_not_simulated = fmt::format("stages with degrees of their own are simulated on {} devices at most", kMostSimulated);
    return;
  }
  try {
    const train::Forecast forecast = train::forecast(train::decided(run, *plan.choice), cluster);
    plan.simulated_seconds = forecast.step_seconds;
    if (!forecast.fits()) plan.why_not_simulated = forecast.reason;
  } catch (const base::Error& error) {
    if (error.kind() != base::ErrorKind::not_legal) throw;
    plan.why_not_simulated = error.what();
  }
}

}  // namespace

bool is_named(const std::string& planner) { return std::find(kNamed.begin(), kNamed.end(), planner) != kNamed.end(); }

NamedPlan plan_named(const std::string& planner, const config::Run& run, const planner::Problem& problem, const cluster::Cluster& cluster,
                     const planner::Choice& ours) {
  const std::int64_t most = planner == "pipedream" || planner == "2bw" ? kMostDevices : kMostSmall;
  if (problem.ranks > most)
    base::not_legal("--planner {} looks at {} devices at most, and there are {}; use fewer --ranks", planner, most, problem.ranks);
  const auto rate = [&](cluster::Reach reach, double otherwise) {
    const cluster::Link* link = cluster.find(reach);
    return link == nullptr ? otherwise : cluster::bandwidth_for(cluster, *link, problem.ranks_per_node);
  };
  const double inside = rate(cluster::Reach::inside, cluster.device.bandwidth);
  const double across = rate(cluster::Reach::across, inside);
  const std::optional<std::int64_t> pinned = train::pins_of(run).micro;
  std::vector<Chain> chains;
  for (const std::int64_t micro : planner::divisors(problem.global_batch)) {
    if (pinned ? micro == *pinned : micro <= std::max(kMostMicro, ours.micro))
      chains.push_back(named::chain_of(problem, micro, inside, across));
  }
  NamedPlan plan{.planner = planner, .stages = "", .micro = 0};
  const auto take = [&](const Chain& chain, const Answer& answer) {
    if (std::isinf(answer.objective)) return;
    const double seconds = named::batch_seconds(chain, answer.stages);
    if (plan.micro != 0 && seconds >= plan.batch_seconds) return;
    plan.stages = named::describe(answer.stages);
    plan.micro = chain.micro;
    plan.batch_seconds = seconds;
    plan.choice = choice_of(planner, chain, answer.stages);
  };
  if (planner == "2bw") {
    const Answer answer = named::two_buffered(chains);
    for (const Chain& chain : chains) {
      if (chain.micro == answer.micro) take(chain, answer);
    }
  } else {
    for (const Chain& chain : chains) take(chain, answer_of(planner, chain));
  }
  if (plan.micro == 0) {
    base::not_legal(
        "--planner {} finds no way to deal out {} layers and batches of {} samples to {} devices that fits {} of memory each; use fewer "
        "--ranks, or another \"batch\"",
        planner, problem.layers, problem.global_batch, problem.ranks, base::to_string(problem.device));
  }
  plan.ours_seconds = named::batch_seconds(named::chain_of(problem, ours.micro, inside, across), stages_of(ours, problem.layers));
  simulate(plan, run, problem, cluster);
  return plan;
}

base::Json to_json(const NamedPlan& plan) {
  base::Json json = base::Json::object({{"planner", plan.planner},
                                        {"stages", plan.stages},
                                        {"micro_batch", plan.micro},
                                        {"batch_seconds", plan.batch_seconds},
                                        {"ours_batch_seconds", plan.ours_seconds}});
  if (plan.choice) json.set("settings", strategy_json(*plan.choice));
  if (plan.simulated_seconds) json.set("step_seconds", base::Json(*plan.simulated_seconds));
  if (!plan.why_not_simulated.empty()) json.set("reason", base::Json(plan.why_not_simulated));
  return json;
}

std::string text_of(const NamedPlan& plan, double ours_step) {
  std::string text = fmt::format(
      "\n{} would choose micro-batches of {} and\n  {}\nin one common count (a pipeline of replicated stages, nothing hidden) its batch "
      "takes {:.4g} s, and the best above {:.4g} s\n",
      plan.planner, plan.micro, plan.stages, plan.batch_seconds, plan.ours_seconds);
  if (plan.simulated_seconds) {
    text += fmt::format("simulated, a step of it takes {:.4g} s, and of the best above {:.4g} s\n", *plan.simulated_seconds, ours_step);
    if (!plan.why_not_simulated.empty()) text += fmt::format("it does not fit: {}\n", plan.why_not_simulated);
  } else {
    text += fmt::format("it is not simulated: {}\n", plan.why_not_simulated);
  }
  return text;
}

}  // namespace plimsoll::cli
