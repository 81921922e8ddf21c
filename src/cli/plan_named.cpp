#include "cli/plan_named.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "planner/named/chain.h"
#include "strategy/stages.h"

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

Answer answer_of(const std::string& planner, const Chain& chain) {
  if (planner == "pipedream") return named::pipedream(chain);
  if (planner == "flexflow") return named::flexflow(chain);
  const Chain small = named::coarse(chain, kCoarse);
  Answer answer = planner == "piper" ? named::piper(small) : named::alpa_inter(small);
  answer.stages = named::refined(chain, small, std::move(answer.stages));
  return answer;
}

// Ours as the chain sees it: equal degrees in all stages; chunks and schedules are not in its terms.
std::vector<named::Stage> stages_of(const planner::Choice& choice, std::int64_t layers) {
  std::vector<named::Stage> stages;
  std::size_t first = 0;
  for (const std::int64_t count : strategy::equal_layers(layers, choice.strategy.pipe)) {
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

}  // namespace

bool is_named(const std::string& planner) { return std::find(kNamed.begin(), kNamed.end(), planner) != kNamed.end(); }

NamedPlan plan_named(const std::string& planner, const planner::Problem& problem, const cluster::Cluster& cluster,
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
  std::vector<Chain> chains;
  for (const std::int64_t micro : planner::divisors(problem.global_batch)) {
    if (micro <= std::max(kMostMicro, ours.micro)) chains.push_back(named::chain_of(problem, micro, inside, across));
  }
  NamedPlan plan{.planner = planner, .stages = "", .micro = 0};
  const auto take = [&](const Chain& chain, const Answer& answer) {
    if (std::isinf(answer.objective)) return;
    const double seconds = named::batch_seconds(chain, answer.stages);
    if (plan.micro != 0 && seconds >= plan.batch_seconds) return;
    plan.stages = named::describe(answer.stages);
    plan.micro = chain.micro;
    plan.batch_seconds = seconds;
  };
  if (planner == "2bw") {
    const Answer answer = named::two_buffered(chains);
    for (const Chain& chain : chains) {
      if (chain.micro == answer.micro) take(chain, answer);
    }
  } else {
    for (const Chain& chain : chains) take(chain, answer_of(planner, chain));
  }
  if (plan.micro == 0)
    base::not_legal("--planner {} finds nothing that fits {} of device memory", planner, base::to_string(problem.device));
  plan.ours_seconds = named::batch_seconds(named::chain_of(problem, ours.micro, inside, across), stages_of(ours, problem.layers));
  return plan;
}

base::Json to_json(const NamedPlan& plan) {
  return base::Json::object({{"planner", plan.planner},
                             {"stages", plan.stages},
                             {"micro_batch", plan.micro},
                             {"batch_seconds", plan.batch_seconds},
                             {"ours_batch_seconds", plan.ours_seconds}});
}

std::string text_of(const NamedPlan& plan) {
  return fmt::format(
      "\n{} would choose micro-batches of {} and\n  {}\nin one common count (a pipeline of replicated stages, nothing hidden) its batch "
      "takes "
      "{:.4g} s, and the best above {:.4g} s\n",
      plan.planner, plan.micro, plan.stages, plan.batch_seconds, plan.ours_seconds);
}

}  // namespace plimsoll::cli
