// The fields of "strategy" and "limits". Shares of tiers and lists of stages have forms of their own.
#include <algorithm>

#include "base/error.h"
#include "config/fields.h"
#include "strategy/schedules/table.h"

namespace plimsoll::config {

namespace {

constexpr double kMostBlocks = 1e5;
constexpr std::size_t kMostStages = 1'000'000;

// Refuses keys other than these.
void check_members(const base::Json& object, std::string_view key, const std::vector<std::string>& allowed) {
  for (const base::JsonMember& member : object.as_object()) {
    if (std::find(allowed.begin(), allowed.end(), member.key) != allowed.end()) continue;
    base::bad_input("{}: found the key {} in \"{}\", expected one of {}", object.where_key(member), base::quote_json(member.key), key,
                    fmt::join(allowed, ", "));
  }
}

bool read_share(const base::Json& value, std::string_view key, strategy::TierShare& share) {
  if (value.is_string()) {
    const std::string& word = value.as_string();
    if (word != "none" && word != "host" && word != "disk") return false;
    share = {.host = word == "host" ? 1.0 : 0.0, .disk = word == "disk" ? 1.0 : 0.0};
    return true;
  }
  if (!value.is_object()) return false;
  check_members(value, key, {"host", "disk"});
  share = {};
  for (const base::JsonMember& member : value.as_object()) {
    if (!member.value.is_number() || !between(0.0, 1.0).contains(member.value.as_double())) {
      fail_value(member.value, fmt::format("{}.{}", key, member.key), "a share from 0 to 1");
    }
    (member.key == "host" ? share.host : share.disk) = member.value.as_double();
  }
  if (share.host + share.disk > 1.0) {
    base::bad_input("{}: found shares of {} + {} = {} for \"{}\", expected at most 1 in all", value.where(), share.host, share.disk,
                    share.host + share.disk, key);
  }
  return true;
}

base::Json share_to_json(const strategy::TierShare& share) {
  if (share == strategy::TierShare{}) return "none";
  if (share == strategy::TierShare{.host = 1.0}) return "host";
  if (share == strategy::TierShare{.disk = 1.0}) return "disk";
  return base::Json::object({{"host", share.host}, {"disk", share.disk}});
}

template <typename Get>
Field share_field(const std::string& key, Get get, std::string about) {
  Field field{.key = key,
              .about = std::move(about),
              .expects = "none, host, disk or shares such as {\"host\": 0.6, \"disk\": 0.1}",
              .choices = {"none", "host", "disk"}};
  field.read = [get, key](const base::Json& value, Run& run) { return read_share(value, key, get(run)); };
  field.write = [get](const Run& run) { return share_to_json(get(run)); };
  return field;
}

std::int64_t stage_number(const base::Json& value, const std::string& key, const Range& range) {
  if (!value.is_integer() || !range.contains(value.as_double())) fail_value(value, key, expects_integer(range));
  if (value.as_double() > range.ceiling) fail_value(value, key, fmt::format("at most {}", range.ceiling));
  return value.as_integer();
}

// Degrees that a stage does not give are 0 here; derive.cpp puts the strategy's in their place.
strategy::Stage read_stage(const base::Json& value, const std::string& key) {
  if (!value.is_object()) return {.blocks = stage_number(value, key, count_from(0, kMostBlocks)), .data = 0, .tensor = 0};
  check_members(value, key, {"blocks", "data", "tensor"});
  const auto number = [&](std::string_view name, std::int64_t absent, const Range& range) {
    const base::Json* found = value.find(name);
    return found == nullptr ? absent : stage_number(*found, fmt::format("{}.{}", key, name), range);
  };
  if (value.find("blocks") == nullptr) fail_value(value, key, "it to have the key \"blocks\"");
  return {.blocks = number("blocks", 0, count_from(0, kMostBlocks)),
          .data = number("data", 0, count_from(1, kMostRanks)),
          .tensor = number("tensor", 0, count_from(1, kMostRanks))};
}

Field stages_field() {
  Field field{.key = "strategy.stages",
              .about = "How blocks are dealt to the pipeline's (virtual) stages: evenly, by predicted cost, or as listed.",
              .expects = "equal, cost, a list of block counts, or a list of stages such as {\"blocks\": 4, \"data\": 2, \"tensor\": 1}",
              .choices = {"equal", "cost"}};
  field.read = [](const base::Json& value, Run& run) {
    strategy::Strategy& strategy = run.strategy;
    strategy.stages.clear();
    if (value.is_string()) {
      strategy.partition = value.as_string() == "cost" ? strategy::StagePartition::by_cost : strategy::StagePartition::equal;
      return value.as_string() == "cost" || value.as_string() == "equal";
    }
    if (!value.is_array() || value.size() == 0 || value.size() > kMostStages) return false;
    strategy.partition = strategy::StagePartition::listed;
    for (std::size_t i = 0; i < value.size(); ++i)
      strategy.stages.push_back(read_stage(value.at(i), fmt::format("strategy.stages[{}]", i)));
    return true;
  };
  field.write = [](const Run& run) -> base::Json {
    const strategy::Strategy& strategy = run.strategy;
    if (strategy.partition != strategy::StagePartition::listed) {
      return strategy.partition == strategy::StagePartition::by_cost ? "cost" : "equal";
    }
    const bool uniform = std::all_of(strategy.stages.begin(), strategy.stages.end(), [&](const strategy::Stage& stage) {
      return stage.data == strategy.data && stage.tensor == strategy.tensor;
    });
    base::Json list = base::Json::array();
    for (const strategy::Stage& stage : strategy.stages) {
      list.push(uniform ? base::Json(stage.blocks)
                        : base::Json::object({{"blocks", stage.blocks}, {"data", stage.data}, {"tensor", stage.tensor}}));
    }
    return list;
  };
  return field;
}

// Those that can be run.
std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const strategy::schedules::Kind& kind : strategy::schedules::kinds()) {
    if (!kind.drawn_only) names.emplace_back(kind.name);
  }
  return names;
}

Field schedule_field() {
  Field field{.key = "strategy.schedule", .about = "Order of the pipeline's forward and backward pieces.", .choices = schedule_names()};
  field.expects = fmt::format("{}, or the path of a .csv file", expects_choice(field.choices));
  field.takes_text = true;
  field.read = [](const base::Json& value, Run& run) {
    if (!value.is_string()) return false;
    const std::string& name = value.as_string();
    // What can only be drawn is no choice, but whoever asks for it is told so by the strategy's legality, with what to use instead.
    const bool known = std::ranges::any_of(strategy::schedules::kinds(), [&](const auto& kind) { return kind.name == name; });
    if (!known && (!name.ends_with(".csv") || name.find('\0') != std::string::npos)) return false;
    run.strategy.schedule = name;
    return true;
  };
  field.write = [](const Run& run) { return base::Json(run.strategy.schedule); };
  return field;
}

}  // namespace

std::vector<Field> strategy_fields() {
  return {
      number_field("strategy.data", PLIMSOLL_AT(strategy.data), count_from(1, kMostRanks), "Copies of the model that share out the batch."),
      number_field("strategy.tensor", PLIMSOLL_AT(strategy.tensor), count_from(1, kMostRanks),
                   "Ranks that each weight matrix is split over."),
      number_field("strategy.pipe", PLIMSOLL_AT(strategy.pipe), count_from(1, kMostRanks), "Pipeline ranks that the blocks are dealt to.")
          .derived_from("1, or listed stages / chunks"),
      number_field("strategy.chunks", PLIMSOLL_AT(strategy.chunks), count_from(1, kMostBlocks), "Pipeline stages of a rank (interleaved)."),
      number_field("strategy.zero", PLIMSOLL_AT(strategy.zero), between(0, 3),
                   "What `data` ranks share out: 1 optimizer state, 2 also gradients, 3 also weights."),
      number_field("strategy.zero_group", PLIMSOLL_AT(strategy.zero_group), count_from(0, kMostRanks),
                   "ZeRO: neighbouring `data` ranks (of one machine) that share tensors out; such groups hold the same. 0 = all."),
      schedule_field(),
      number_field(
          "strategy.flush_every", PLIMSOLL_AT(strategy.flush_every), count_from(1, kMostBlocks),
          "Schedules without a flush (pipedream, pipedream-vsync, 2bw) or barrier (zb-h2): steps until all ranks wait for one another."),
      flag_field("strategy.sequence_parallel", PLIMSOLL_AT(strategy.sequence_parallel),
                 "Split activations along the sequence between tensor-parallel parts."),
      flag_field("strategy.scatter_boundaries", PLIMSOLL_AT(strategy.scatter_boundaries),
                 "Between stages every tensor rank sends its rows alone, and they are gathered there."),
      choice_field("strategy.recompute", PLIMSOLL_AT(strategy.recompute), "Which activations are computed again in the backward pass."),
      number_field("strategy.recompute_every", PLIMSOLL_AT(strategy.recompute_every), count_from(1, kMostBlocks),
                   "Full recompute: of how many blocks one keeps its input."),
      number_field("strategy.recompute_memory", PLIMSOLL_AT(strategy.recompute_memory), between(0.0, 1.0),
                   "Optimal recompute: share of the activation memory it may use; 0 = what `limits.device` leaves."),
      flag_field("strategy.split_activations", PLIMSOLL_AT(strategy.split_activations),
                 "Of activations that all `tensor` ranks have, each keeps a part (ZeRO-R); they are gathered for the backward pass."),
      share_field("strategy.offload.optimizer", PLIMSOLL_AT(strategy.offload.optimizer), "Tier of optimizer state and master weights."),
      share_field("strategy.offload.gradients", PLIMSOLL_AT(strategy.offload.gradients), "Tier of gradients."),
      share_field("strategy.offload.params", PLIMSOLL_AT(strategy.offload.params), "Tier of weights."),
      share_field("strategy.offload.activations", PLIMSOLL_AT(strategy.offload.activations), "Tier of saved activations."),
      bytes_field(
          "strategy.tile", PLIMSOLL_AT(strategy.tile),
          "Largest weight matrix that is computed with whole; larger ones are fetched, used and updated by tiles of rows. 0 = all."),
      bytes_field("strategy.bucket", PLIMSOLL_AT(strategy.bucket), "Gradients moved in one collective."),
      number_field("strategy.prefetch", PLIMSOLL_AT(strategy.prefetch), count_from(0, kMostBlocks),
                   "Blocks that gathers and copies run ahead."),
      flag_field("strategy.keep_params", PLIMSOLL_AT(strategy.keep_params),
                 "ZeRO-3: keep gathered weights across micro-batches instead of gathering them again."),
      flag_field("strategy.keep_grads", PLIMSOLL_AT(strategy.keep_grads),
                 "ZeRO-2/3: keep whole gradients across micro-batches and reduce once, instead of reducing each."),
      choice_field(
          "strategy.embedding_rows", PLIMSOLL_AT(strategy.embedding_rows),
          "Where the token table is: whole with the other weights, or on disk, whence a step brings the rows that it reads and the "
          "optimizer updates those alone (untied models)."),
      flag_field("strategy.delayed_update", PLIMSOLL_AT(strategy.delayed_update),
                 "Update with the previous step's gradients, while the device computes the next ones (`offload.optimizer`)."),
      choice_field(
          "strategy.carry_update", PLIMSOLL_AT(strategy.carry_update),
          "Updates of the host that clipping holds back run under the next forward pass (auto: beside a GPU, where memory allows)."),
      choice_field("strategy.reduce", PLIMSOLL_AT(strategy.reduce), "Gradients are added around a ring, or by one rank for all."),
      stages_field(),
      bytes_field("limits.device", PLIMSOLL_AT(limits.device), "Most device memory of a rank; 0 = what is there."),
      bytes_field("limits.host", PLIMSOLL_AT(limits.host), "Most host memory of a machine; 0 = what is there."),
      bytes_field("limits.disk", PLIMSOLL_AT(limits.disk), "Most disk space; 0 = what is free."),
      text_field("limits.disk_path", PLIMSOLL_AT(limits.disk_path), "a path", "Folder of the disk tier."),
      number_field("limits.silence", PLIMSOLL_AT(silence_limit), between(0.5, 86400),
                   "Seconds without a sign of life after which a rank counts as lost (processes, NCCL)."),
      number_field("limits.wait", PLIMSOLL_AT(wait_limit), between(0.1, 604800),
                   "Seconds that ranks wait in a collective for one that does not come, however they talk."),
      number_field("limits.not_finite", PLIMSOLL_AT(not_finite_limit), count_from(1, 1e9),
                   "Steps in a row without a finite gradient after which a run stops; till then they change nothing."),
  };
}

}  // namespace plimsoll::config
