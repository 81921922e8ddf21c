#include "strategy/legality.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "codecs/table.h"
#include "strategy/schedules/csv.h"
#include "strategy/schedules/table.h"

namespace plimsoll::strategy {

namespace {

// How far from the device: 0 there, 1 in the host's memory, 2 on disk.
int distance(const TierShare& share) { return share.disk > 0.0 ? 2 : share.host > 0.0 ? 1 : 0; }

// Shares are written with a few digits: two thirds and a third are all.
bool is_part(const TierShare& share) { return share.anything() && share.host + share.disk < 1.0 - 1e-6; }

std::string place_of(const TierShare& share) {
  if (share == TierShare{.host = 1.0}) return "in the host's memory";
  if (share == TierShare{.disk = 1.0}) return "on disk";
  std::string parts = share.host > 0.0 ? fmt::format("{:.3g}% in the host's memory", 100.0 * share.host) : "";
  if (share.disk > 0.0) parts += fmt::format("{}{:.3g}% on disk", parts.empty() ? "" : " and ", 100.0 * share.disk);
  return parts;
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::full: return "full";
    case Recompute::selective: return "selective";
    case Recompute::optimal: return "optimal";
  }
  return "?";
}

// Of stages that have degrees of their own.
void add_degree_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  if (strategy.chunks > 1) {
    reasons.push_back(
        fmt::format("\"stages\" have degrees of their own, but \"chunks\" is {}, which puts several on a rank; use 1", strategy.chunks));
  }
  if (strategy.zero_group > 0) {
    reasons.push_back(fmt::format("\"stages\" have degrees of their own, but \"zero_group\" {} is for one number of data ranks; use 0",
                                  strategy.zero_group));
  }
  const bool one_width = std::all_of(strategy.stages.begin(), strategy.stages.end(),
                                     [&](const Stage& stage) { return stage.tensor == strategy.stages.front().tensor; });
  if (strategy.sequence_parallel && !one_width) {
    reasons.emplace_back(
        "\"sequence_parallel\" sends rows from each tensor rank to its like, but \"stages\" have different \"tensor\" degrees; use false, "
        "or "
        "one degree");
  }
}

// Of axes beside data, tensor and pipe, which no run file names: they come from who calls the library.
void add_axis_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  if (strategy.own_degrees()) {
    reasons.push_back(fmt::format("\"stages\" have degrees of their own, but there is an axis \"{}\" beside them; use one or the other",
                                  strategy.more.front().row.axis.name()));
  }
  std::vector<ops::AxisRow> rows;
  for (const auto& [row, degree] : strategy.more) {
    const std::string_view name = row.axis.name();
    const bool twice =
        std::any_of(rows.begin(), rows.end(), [&, &axis = row.axis](const ops::AxisRow& other) { return other.axis == axis; });
    if (!row.axis.valid() || row.part_of.valid() || row.some_places || twice || ops::known_axis(row.axis) != nullptr)
      reasons.push_back(fmt::format("the axis \"{}\" must be an axis of its own, with a name that no other has", name));
    if (degree < 1) reasons.push_back(fmt::format("the axis \"{}\" has {} ranks; use 1 or more", name, degree));
    rows.push_back(row);
    if (ops::nested(rows).size() != ops::nested({}).size() + rows.size()) {
      reasons.push_back(fmt::format("the axis \"{}\" is inside \"{}\", which is none of those before it", name, row.inside.name()));
      rows.pop_back();
    }
  }
}

// Of schedules, by name or from a file, in which several steps are under way.
void add_version_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  if (strategy.zero == 3 && strategy.keep_params) {
    reasons.push_back(
        fmt::format("\"keep_params\" keeps gathered weights for a step, but with \"{}\" a step has several versions of them; use false",
                    strategy.schedule));
  }
  if (strategy.offload.params.disk > 0.0) {
    reasons.push_back(fmt::format(
        "\"offload.params\" is on disk, but \"{}\" puts older versions of the weights aside, which is done in memory alone; use "
        "\"host\", or \"schedule\": \"1f1b\"",
        strategy.schedule));
  }
}

// Reasons that do not depend on the number of micro-batches; those that do are found when the schedule is made.
void add_schedule_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  if (strategy.own_degrees()) add_degree_reasons(strategy, reasons);
  if (!synchronous(strategy)) add_version_reasons(strategy, reasons);
  if (strategy.schedule.ends_with(schedules::kCsvSuffix)) return;
  const schedules::Kind& kind = schedules::find_kind(strategy.schedule);
  if (kind.drawn_only) reasons.push_back(fmt::format("\"schedule\" is \"{}\", which can be drawn, but not run; use \"zb-h1\"", kind.name));
  if (strategy.flush_every > 1 && !kind.takes_batches()) {
    reasons.push_back(
        fmt::format("\"flush_every\" is {}, but \"{}\" ends every step with a flush; use 1, or \"schedule\": \"zb-h2\" or \"2bw\"",
                    strategy.flush_every, strategy.schedule));
  }
}

std::string why_gradients_stay(const Strategy& strategy, std::int64_t micro_batches) {
  if (strategy.zero >= 2 && !strategy.keep_grads)
    return fmt::format(
        "\"offload.gradients\" moves gradients out after every micro-batch, but groups of {} data ranks (\"zero_group\") are summed after "
        "the "
        "last of {}; use \"zero_group\": 0, or one micro-batch",
        strategy.zero_group, micro_batches);
  return fmt::format(
      "\"offload.gradients\" moves gradients out after every micro-batch, but the data ranks keep them whole until the last of {}; use "
      "\"zero\": 2 or 3 with \"keep_grads\": false, or one micro-batch",
      micro_batches);
}

void add_tier_reasons(const Strategy& strategy, std::int64_t micro_batches, std::vector<std::string>& reasons) {
  const Offload& offload = strategy.offload;
  for (const auto& [name, share] : {std::pair<std::string_view, TierShare>{"gradients", offload.gradients}, {"params", offload.params}}) {
    if (share.anything() && share != TierShare{.host = 1.0} && share != TierShare{.disk = 1.0})
      reasons.push_back(
          fmt::format("\"offload.{0}\" asks for a part, but {0} can only be all in one tier; use \"host\" or \"disk\"", name));
  }
  if (offload.activations.host > 0.0 && offload.activations.disk > 0.0)
    reasons.emplace_back("\"offload.activations\" names two tiers, but what leaves goes to one; use a share of \"host\" or of \"disk\"");
  if (is_part(offload.optimizer) && (offload.gradients.anything() || offload.params.anything()))
    reasons.emplace_back(
        "\"offload.optimizer\" leaves a part of the state on the device, which would update weights and read gradients that are elsewhere; "
        "use \"none\" for \"offload.gradients\" and \"offload.params\", or shares of \"offload.optimizer\" whose sum is 1");
  const std::string_view tier = distance(offload.params) == 2 || distance(offload.gradients) == 2 ? "disk" : "host";
  if (distance(offload.params) > distance(offload.optimizer))
    reasons.push_back(
        fmt::format("\"offload.params\" is farther away than \"offload.optimizer\", which updates them; use \"{}\" for both", tier));
  if (offload.gradients.anything() && !offload.optimizer.anything())
    reasons.push_back(
        fmt::format("\"offload.gradients\" moves gradients to where no update reads them; use \"offload.optimizer\": \"{}\" too", tier));
  if (offload.gradients.anything() && !gradients_may_leave(strategy, micro_batches))
    reasons.push_back(why_gradients_stay(strategy, micro_batches));
  if (offload.params.anything() && !weights_may_leave(strategy))
    reasons.push_back(fmt::format(
        "\"offload.params\" with \"zero\": {} would gather updated weights in the host's memory; use \"zero\": 3, in which each "
        "rank has its own shard, or 0, in which each has all",
        strategy.zero));
}

void add_carry_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  constexpr std::string_view kAlways = "\"carry_update\" is \"always\", but";
  if (!strategy.offload.optimizer.anything()) {
    reasons.push_back(
        fmt::format("{} updates on the device have nothing to run under; use \"offload.optimizer\": \"host\", or \"auto\"", kAlways));
  }
  if (strategy.delayed_update)
    reasons.push_back(fmt::format("{} with \"delayed_update\" updates have a whole step to run under; use \"auto\"", kAlways));
  if (!synchronous(strategy))
    reasons.push_back(fmt::format("{} with \"{}\" no step ends before the next begins; use \"auto\"", kAlways, strategy.schedule));
  if (gathers_parts(strategy))
    reasons.push_back(
        fmt::format("{} with \"zero\": {} ranks gather what the device and what the host updated together; use shares of "
                    "\"offload.optimizer\" whose sum is 1, or \"auto\"",
                    kAlways, strategy.zero));
}

// Rows of a table on disk go back there at the end of the step that brought them.
void add_row_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  constexpr std::string_view kDisk = "\"embedding_rows\" is \"disk\", but";
  if (strategy.delayed_update)
    reasons.push_back(
        fmt::format("{} with \"delayed_update\" a gradient waits until other rows are there; use false, or \"whole\"", kDisk));
  if (strategy.carry_update == CarryUpdate::always)
    reasons.push_back(
        fmt::format("{} with \"carry_update\": \"always\" an update waits until other rows are there; use \"auto\", or \"whole\"", kDisk));
  if (!synchronous(strategy))
    reasons.push_back(
        fmt::format("{} with \"{}\" several steps are under way, each with rows of its own; use \"schedule\": \"1f1b\", or \"whole\"",
                    kDisk, strategy.schedule));
}

// Of codecs: what they remember is each data rank's own, from one step to the next.
void add_communication_reasons(const Strategy& strategy, std::vector<std::string>& reasons) {
  const codecs::Choice& gradients = strategy.communication.gradients;
  if (!gradients.any()) return;
  const std::string found = fmt::format("\"communication.gradients\" is {}", words(gradients, codecs::Use::gradients));
  if (strategy.reduce == Reduce::main)
    reasons.push_back(fmt::format("{}, which every rank sums a part of, but \"reduce\" is \"main\"; use \"ring\"", found));
  if (!remembers(gradients)) return;
  constexpr std::string_view kWithout = "\"error_feedback\": false, or \"bf16\"";
  if (strategy.shards() < strategy.data)
    reasons.push_back(fmt::format("{}, which feeds back what sums over all data ranks lose, but \"zero_group\" is {}; use 0, {}", found,
                                  strategy.zero_group, kWithout));
  if (strategy.own_degrees())
    reasons.push_back(fmt::format("{}, which remembers per data rank, but \"stages\" have numbers of them of their own; use one number, {}",
                                  found, kWithout));
  if (!synchronous(strategy))
    reasons.push_back(
        fmt::format("{}, which remembers one step's errors, but with \"{}\" several steps are under way; use \"schedule\": "
                    "\"1f1b\", {}",
                    found, strategy.schedule, kWithout));
}

}  // namespace

bool gathers_parts(const Strategy& strategy) {
  return is_part(strategy.offload.optimizer) && strategy.pipelines() * strategy.turn() > 1 && (strategy.zero == 1 || strategy.zero == 2);
}

bool gradients_may_leave(const Strategy& strategy, std::int64_t micro_batches) {
  if (micro_batches == 1 || strategy.pipelines() * strategy.turn() == 1) return true;
  return strategy.zero >= 2 && !strategy.keep_grads && (strategy.zero_group == 0 || strategy.zero_group == strategy.data);
}

bool weights_may_leave(const Strategy& strategy) {
  return strategy.pipelines() * strategy.turn() == 1 || strategy.zero == 0 || strategy.zero == 3;
}

std::vector<std::string> reasons_against(const Strategy& strategy, std::int64_t micro_batches) {
  std::vector<std::string> reasons;
  const auto against = [&](bool holds, std::string reason) {
    if (holds) reasons.push_back(std::move(reason));
  };
  against(strategy.pipe == 1 && strategy.chunks != 1,
          fmt::format("\"chunks\" is {}, but the pipe axis has one rank; use \"chunks\": 1", strategy.chunks));
  against(strategy.pipe == 1 && strategy.flush_every != 1,
          fmt::format("\"flush_every\" is {}, but the pipe axis has one rank; use 1", strategy.flush_every));
  if (!strategy.more.empty()) add_axis_reasons(strategy, reasons);
  if (strategy.pipe > 1) add_schedule_reasons(strategy, reasons);
  against(
      strategy.zero > 0 && strategy.reduce == Reduce::main,
      fmt::format(
          "\"reduce\" is \"main\", which brings whole gradients to one rank, but \"zero\" is {}; use \"zero\": 0 or \"reduce\": \"ring\"",
          strategy.zero));
  against(strategy.zero_group > 0 && strategy.data % strategy.zero_group != 0,
          fmt::format("\"zero_group\" is {}, which does not divide \"data\": {} leaves {} over; use a divisor, or 0 for all data ranks",
                      strategy.zero_group, strategy.data, strategy.data % std::max<std::int64_t>(1, strategy.zero_group)));
  against(strategy.zero_group == 1 && strategy.data > 1,
          "\"zero_group\" is 1, and one rank shares nothing out; use 2 or more, 0 for all data ranks, or \"zero\": 0");
  against(
      strategy.zero_group > 0 && strategy.zero == 0,
      fmt::format("\"zero_group\" is {}, but with \"zero\": 0 nothing is shared out; use 0, or \"zero\": 1, 2 or 3", strategy.zero_group));
  against(strategy.sequence_parallel && strategy.widest_tensor() == 1,
          "\"sequence_parallel\" is true, but the tensor axis has one rank; use false, or a larger \"tensor\"");
  against(strategy.pipe == 1 && strategy.partition != StagePartition::equal,
          "\"stages\" divides the blocks, but there is one stage; use \"equal\"");
  against(strategy.recompute_every > 1 && strategy.recompute != Recompute::full,
          fmt::format("\"recompute_every\" is {}, which belongs to \"recompute\": \"full\", but \"recompute\" is \"{}\"; use 1",
                      strategy.recompute_every, name_of(strategy.recompute)));
  against(strategy.recompute_memory > 0.0 && strategy.recompute != Recompute::optimal,
          fmt::format("\"recompute_memory\" is {}, which belongs to \"recompute\": \"optimal\", but \"recompute\" is \"{}\"; use 0",
                      strategy.recompute_memory, name_of(strategy.recompute)));
  against(strategy.split_activations && strategy.widest_tensor() == 1,
          "\"split_activations\" is true, but the tensor axis has one rank; use false, or a larger \"tensor\"");
  against(strategy.split_activations && strategy.sequence_parallel,
          "\"split_activations\" is true, but with \"sequence_parallel\" no tensor rank has what others have; use one of them");
  against(strategy.split_activations && strategy.recompute == Recompute::optimal,
          "\"split_activations\" is true, but \"recompute\": \"optimal\" counts activations as whole; use \"full\" or \"selective\"");
  add_tier_reasons(strategy, micro_batches, reasons);
  against(strategy.delayed_update && !strategy.offload.optimizer.anything(),
          "\"delayed_update\" is true, but updates on the device have nothing to run under; use \"offload.optimizer\": \"host\", or false");
  against(
      strategy.delayed_update && is_part(strategy.offload.optimizer),
      "\"delayed_update\" is true, but the device updates its share of \"offload.optimizer\" inside the step; use shares of \"host\" and "
      "\"disk\" that are all of it");
  against(strategy.delayed_update && strategy.offload.gradients.anything(),
          "\"delayed_update\" keeps gradients where the optimizer state is until the next step; use \"offload.gradients\": \"none\"");
  against(
      strategy.delayed_update && !synchronous(strategy),
      fmt::format("\"delayed_update\" is true, but with \"{}\" updates run beside later micro-batches already; use false, or \"schedule\": "
                  "\"1f1b\"",
                  strategy.schedule));
  add_communication_reasons(strategy, reasons);
  if (strategy.carry_update == CarryUpdate::always) add_carry_reasons(strategy, reasons);
  if (strategy.embedding_rows == EmbeddingRows::disk) add_row_reasons(strategy, reasons);
  return reasons;
}

// With a flush after every step nothing computes with older weights, whatever the schedule, by name or from a file.
bool synchronous(const Strategy& strategy) { return strategy.pipe == 1 || strategy.flush_every == 1; }

bool made_without_flush(const Strategy& strategy) {
  return strategy.pipe > 1 && !strategy.schedule.ends_with(schedules::kCsvSuffix) && schedules::find_kind(strategy.schedule).asynchronous;
}

void require_legal(const Strategy& strategy, std::int64_t micro_batches) {
  const std::vector<std::string> reasons = reasons_against(strategy, micro_batches);
  if (!reasons.empty()) base::not_legal("this strategy cannot be run: {}", fmt::join(reasons, "; "));
}

std::string more_text(const Strategy& strategy) {
  std::string text;
  for (const auto& [row, degree] : strategy.more) text += fmt::format(" x {} {}", row.axis.name(), degree);
  return text;
}

std::string mesh_text(const Strategy& strategy) {
  const std::string_view rows = strategy.sequence_parallel ? " by sequence" : "";
  if (!strategy.own_degrees()) {
    return fmt::format("data {} x tensor {}{} x pipe {}{}", strategy.data, strategy.tensor, rows, strategy.pipe, more_text(strategy));
  }
  std::vector<std::string> stages;
  for (const Stage& stage : strategy.stages) stages.push_back(fmt::format("{} x {}", stage.data, stage.tensor));
  return fmt::format("stages of data x tensor {}{}", fmt::join(stages, ", "), rows);
}

std::string describe(const Strategy& strategy) {
  const std::string recompute = strategy.recompute == Recompute::none ? "" : fmt::format(", recompute {}", name_of(strategy.recompute));
  std::string tiers;
  for (const auto& [name, share] : {std::pair<std::string_view, TierShare>{"optimizer state", strategy.offload.optimizer},
                                    {"gradients", strategy.offload.gradients},
                                    {"weights", strategy.offload.params},
                                    {"activations", strategy.offload.activations}}) {
    if (share.anything()) tiers += fmt::format(", {} {}", name, place_of(share));
  }
  if (strategy.embedding_rows == EmbeddingRows::disk) tiers += ", the token table's rows on disk";
  for (const auto& [what, use] : {std::pair<std::string_view, codecs::Use>{"gradients", codecs::Use::gradients},
                                  {"weights", codecs::Use::weights},
                                  {"activations", codecs::Use::activations}}) {
    const codecs::Choice& choice = choice_for(strategy.communication, use);
    if (choice.any()) tiers += fmt::format(", {} sent as {}", what, words(choice, use));
  }
  if (strategy.tile.count > 0) tiers += fmt::format(", weights over {} in tiles", base::to_string(strategy.tile));
  if (strategy.ranks() == 1) return fmt::format("one rank{}{}", recompute.empty() ? ", everything kept" : recompute, tiers);
  if (strategy.tensor == 1 && strategy.pipe == 1 && strategy.more.empty()) {
    constexpr std::array<std::string_view, 4> kSplit{"everything whole", "optimizer state in shards",
                                                     "optimizer state and gradients in shards",
                                                     "optimizer state, gradients and weights in shards"};
    const std::string groups =
        strategy.shards() < strategy.data ? fmt::format(" of {}, {} alike", strategy.shards(), strategy.data / strategy.shards()) : "";
    return fmt::format("{} data ranks, ZeRO {}{}: {}{}", strategy.data, strategy.zero, groups,
                       kSplit.at(static_cast<std::size_t>(strategy.zero)), recompute + tiers);
  }
  return fmt::format("{}, ZeRO {}{}, {}, recompute {}{}", mesh_text(strategy), strategy.zero,
                     strategy.shards() < strategy.data ? fmt::format(" in groups of {}", strategy.shards()) : "", strategy.schedule,
                     name_of(strategy.recompute), tiers);
}

}  // namespace plimsoll::strategy
