#include "strategy/legality.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "codecs/table.h"
#include "strategy/dimensions.h"
#include "strategy/schedules/table.h"

namespace plimsoll::strategy {

namespace {

std::string place_of(const TierShare& share) {
  if (share == TierShare{.host = 1.0}) return "in the host's memory";
  if (share == TierShare{.disk = 1.0}) return "on disk";
  std::string parts = share.host > 0.0 ? fmt::format("{:.3g}% in the host's memory", 100.0 * share.host) : "";
  if (share.disk > 0.0) parts += fmt::format("{}{:.3g}% on disk", parts.empty() ? "" : " and ", 100.0 * share.disk);
  return parts;
}

// Of axes beside data, tensor and pipe, which no run file names: they come from who calls the library.
void add_axis_reasons(const Strategy& strategy, Reasons& reasons) {
  reasons.against(strategy.own_degrees(),
                  "\"stages\" have degrees of their own, but there is an axis \"{}\" beside them; use one or the other",
                  strategy.more.front().row.axis.name());
  std::vector<ops::AxisRow> rows;
  for (const auto& [row, degree] : strategy.more) {
    const std::string_view name = row.axis.name();
    const bool twice =
        std::any_of(rows.begin(), rows.end(), [&, &axis = row.axis](const ops::AxisRow& other) { return other.axis == axis; });
    reasons.against(!row.axis.valid() || row.part_of.valid() || row.some_places || twice || ops::known_axis(row.axis) != nullptr,
                    "the axis \"{}\" must be an axis of its own, with a name that no other has", name);
    reasons.against(degree < 1, "the axis \"{}\" has {} ranks; use 1 or more", name, degree);
    rows.push_back(row);
    const bool outside = ops::nested(rows).size() != ops::nested({}).size() + rows.size();
    reasons.against(outside, "the axis \"{}\" is inside \"{}\", which is none of those before it", name, row.inside.name());
    if (outside) rows.pop_back();
  }
}

// Of codecs: what they remember is each data rank's own, from one step to the next.
void add_codec_reasons(const Strategy& strategy, Reasons& reasons) {
  const codecs::Choice& gradients = strategy.communication.gradients;
  if (!gradients.any()) return;
  const std::string found = fmt::format("\"communication.gradients\" is {}", words(gradients, codecs::Use::gradients));
  reasons.against(strategy.reduce == Reduce::main, "{}, which every rank sums a part of, but \"reduce\" is \"main\"; use \"ring\"", found);
  if (!remembers(gradients)) return;
  constexpr std::string_view kWithout = "\"error_feedback\": false, or \"bf16\"";
  reasons.against(strategy.shards() < strategy.data,
                  "{}, which feeds back what sums over all data ranks lose, but \"zero_group\" is {}; use 0, {}", found,
                  strategy.zero_group, kWithout);
  reasons.against(strategy.own_degrees(),
                  "{}, which remembers per data rank, but \"stages\" have numbers of them of their own; use one number, {}", found,
                  kWithout);
  reasons.against(!synchronous(strategy),
                  "{}, which remembers one step's errors, but with \"{}\" several steps are under way; use \"schedule\": \"1f1b\", {}",
                  found, strategy.schedule, kWithout);
}

}  // namespace

// Shares are written with a few digits: two thirds and a third are all.
bool is_part(const TierShare& share) { return share.anything() && share.host + share.disk < 1.0 - 1e-6; }

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
  Reasons reasons;
  if (!strategy.more.empty()) add_axis_reasons(strategy, reasons);
  for (const Dimension& dimension : dimensions()) {
    if (dimension.add_reasons != nullptr) dimension.add_reasons(strategy, micro_batches, reasons);
  }
  add_codec_reasons(strategy, reasons);
  return reasons.take();
}

// With a flush after every step nothing computes with older weights, whatever the schedule, by name or from a file.
bool synchronous(const Strategy& strategy) { return strategy.pipe == 1 || strategy.flush_every == 1; }

bool made_without_flush(const Strategy& strategy) {
  const schedules::Kind* kind = strategy.pipe > 1 ? schedules::kind_named(strategy.schedule) : nullptr;
  return kind != nullptr && kind->asynchronous;
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

namespace {

// Whether some ranks have something to send of that.
bool sends(const Strategy& strategy, codecs::Use use) {
  switch (use) {
    case codecs::Use::gradients: return strategy.pipelines() * strategy.turn() > 1;
    case codecs::Use::weights: return strategy.zero == 3;
    case codecs::Use::activations: break;
  }
  return strategy.pipe > 1 || strategy.widest_tensor() > 1;
}

}  // namespace

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
    if (choice.any() && sends(strategy, use)) tiers += fmt::format(", {} sent as {}", what, words(choice, use));
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
