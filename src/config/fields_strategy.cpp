// The fields of "strategy", made from its dimensions (strategy/dimension.h), and those of "limits".
#include <algorithm>

#include "base/error.h"
#include "config/fields.h"
#include "strategy/dimensions.h"
#include "strategy/schedules/table.h"

namespace plimsoll::config {

namespace {

constexpr auto kMostBlocks = static_cast<double>(strategy::kMostBlocks);
constexpr auto kMostRanks = static_cast<double>(strategy::kMostRanks);
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

Field stages_field(const std::string& key, const std::string& about) {
  Field field{.key = key,
              .about = about,
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
      return (stage.data == 0 || stage.data == strategy.data) && (stage.tensor == 0 || stage.tensor == strategy.tensor);
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

Field word_field(const std::string& key, const strategy::Word& word, const std::string& about) {
  Field field{.key = key, .about = about, .choices = {word.words.begin(), word.words.end()}, .takes_text = true};
  field.expects = expects_choice(field.choices);
  field.read = [word](const base::Json& value, Run& run) {
    const auto found = value.is_string() ? std::ranges::find(word.words, value.as_string()) : word.words.end();
    if (found == word.words.end()) return false;
    word.set(run.strategy, static_cast<std::size_t>(found - word.words.begin()));
    return true;
  };
  field.write = [word](const Run& run) { return base::Json(word.words[word.get(run.strategy)]); };
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

Field schedule_field(const std::string& key, const std::string& about) {
  Field field{.key = key, .about = about, .choices = schedule_names()};
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

template <typename T>
auto answer(T strategy::Strategy::* at) {
  return [at](auto& run) -> auto& { return run.strategy.*at; };
}

// By the form in which a dimension's answers are written.
struct FieldOf {
  std::string key;
  std::string about;

  Field operator()(const strategy::Count& count) const {
    const auto least = static_cast<double>(count.least);
    const Range range =
        count.most > 0 ? between(least, static_cast<double>(count.most)) : count_from(least, static_cast<double>(count.ceiling));
    return number_field(key, answer(count.at), range, about);
  }
  Field operator()(const strategy::Flag& flag) const { return flag_field(key, answer(flag.at), about); }
  Field operator()(const strategy::Part& part) const { return number_field(key, answer(part.at), between(0.0, 1.0), about); }
  Field operator()(const strategy::Size& size) const { return bytes_field(key, answer(size.at), about); }
  Field operator()(const strategy::Tiers& tiers) const {
    return share_field(key, [at = tiers.at](auto& run) -> auto& { return run.strategy.offload.*at; }, about);
  }
  Field operator()(const strategy::Word& word) const { return word_field(key, word, about); }
  Field operator()(const strategy::ScheduleName&) const { return schedule_field(key, about); }
  Field operator()(const strategy::StageList&) const { return stages_field(key, about); }
};

}  // namespace

std::vector<Field> strategy_fields() {
  std::vector<Field> fields;
  for (const strategy::Dimension& dimension : strategy::dimensions()) {
    fields.push_back(std::visit(FieldOf{fmt::format("strategy.{}", dimension.key), std::string(dimension.about)}, dimension.form));
    fields.back().derived = dimension.derived;
  }
  return fields;
}

std::vector<Field> limit_fields() {
  return {
      bytes_field("limits.device", PLIMSOLL_AT(limits.device), "Most device memory of a rank; 0 = what is there."),
      bytes_field("limits.host", PLIMSOLL_AT(limits.host), "Most host memory of a machine; 0 = what is there."),
      bytes_field("limits.disk", PLIMSOLL_AT(limits.disk), "Most disk space; 0 = what is free."),
      text_field("limits.disk_path", PLIMSOLL_AT(limits.disk_path), "a path", "Folder of the disk tier."),
      number_field("limits.silence", PLIMSOLL_AT(silence_limit), between(0.5, 86400),
                   "Seconds without a sign of life after which a rank counts as lost (processes, MPI, NCCL)."),
      number_field("limits.wait", PLIMSOLL_AT(wait_limit), between(0.1, 604800),
                   "Seconds that ranks wait in a collective for one that does not come, however they talk."),
      number_field("limits.not_finite", PLIMSOLL_AT(not_finite_limit), count_from(1, 1e9),
                   "Steps in a row without a finite gradient after which a run stops; till then they change nothing."),
  };
}

}  // namespace plimsoll::config
