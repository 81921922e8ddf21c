// Writing a run: as a resolved run file, and as a table of values and where they came from.
#include <algorithm>

#include <fmt/format.h>

#include "config/config.h"
#include "config/derive.h"
#include "config/fields.h"

namespace plimsoll::config {

namespace {

using base::Json;

bool under(const Field& field, std::string_view group) { return field.key.size() > group.size() && field.key.starts_with(group); }

// Settings that mean something to this run: of its family, with a known value, not the planner's to choose.
bool applies(const Field& field, const Run& run) {
  if (field.key == "model.preset" || field.key == "model.path") return !field.write(run).is_null();
  if (under(field, "model.") && !model_known(run)) return false;
  if (field.key == "batch.sequence" && run.batch.sequence == 0) return false;
  if (under(field, "strategy.") && run.strategy_auto) return false;
  return !model_known(run) || includes(field, *run.model.family);
}

void set_path(Json& document, std::string_view key, Json value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) {
    document.set(key, std::move(value));
    return;
  }
  const std::string_view group = key.substr(0, dot);
  if (document.find(group) == nullptr) document.set(group, Json::object());
  set_path(document.members().find(group)->value, key.substr(dot + 1), std::move(value));
}

std::string shown(const Json& value) {
  if (value.is_string() && !value.as_string().empty()) return value.as_string();
  return base::write_json(value);
}

struct Row {
  std::string key;
  Json value;
  std::string origin;
};

std::vector<Row> rows_of(const Run& run) {
  std::vector<Row> rows;
  bool auto_shown = false;
  for (const Field& field : fields_of(run)) {
    if (run.strategy_auto && under(field, "strategy.") && !auto_shown) {
      rows.push_back({"strategy", Json("auto"), run.origin("strategy").text});
      auto_shown = true;
    }
    if (applies(field, run)) rows.push_back({field.key, field.write(run), run.origin(field.key).text});
  }
  return rows;
}

std::string deepspeed_table(const DeepSpeedReport& report) {
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  for (const DeepSpeedOutcome& key : report.keys) {
    key_width = std::max(key_width, key.key.size());
    value_width = std::max(value_width, key.value.size());
  }
  std::string text = "\nThe keys of DeepSpeed and what each becomes (! = differs from DeepSpeed)\n\n";
  for (const DeepSpeedOutcome& key : report.keys)
    text += fmt::format("{} {:<{}}  {:<{}}  {}\n", key.differs ? '!' : ' ', key.key, key_width, key.value, value_width, key.outcome);
  return report.equation.empty() ? text : fmt::format("{}\n{}\n", text, report.equation);
}

}  // namespace

Json to_json(const Run& run) {
  Json document = Json::object();
  for (const Field& field : fields_of(run)) {
    if (run.strategy_auto && under(field, "strategy.")) {
      document.set("strategy", "auto");
      continue;
    }
    if (field.key == "model.path" && !run.model_path.empty()) {
      // The directory stays the source of the description; only what the file changed is repeated.
      Json model = Json::object({{"path", run.model_path}});
      if (run.model_overrides.is_object()) {
        for (const base::JsonMember& member : run.model_overrides.as_object()) model.set(member.key, member.value);
      }
      document.set("model", std::move(model));
    }
    const bool described_elsewhere = field.key == "model.preset" || (under(field, "model.") && !run.model_path.empty());
    if (described_elsewhere || !applies(field, run)) continue;
    set_path(document, field.key, field.write(run));
  }
  return document;
}

std::string explain(const Run& run) {
  const std::vector<Row> rows = rows_of(run);
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  constexpr std::size_t kWidestValue = 32;
  for (const Row& row : rows) {
    key_width = std::max(key_width, row.key.size());
    value_width = std::max(value_width, std::min(kWidestValue, shown(row.value).size()));
  }
  std::string text;
  for (const Row& row : rows) text += fmt::format("{:<{}}  {:<{}}  {}\n", row.key, key_width, shown(row.value), value_width, row.origin);
  if (!run.deepspeed.keys.empty()) text += deepspeed_table(run.deepspeed);
  return text;
}

std::string deepspeed_warning(const Run& run) {
  std::string lines;
  for (const DeepSpeedOutcome& key : run.deepspeed.keys) {
    if (key.differs) lines += fmt::format("  {} = {} ({}): {}\n", key.key, key.value, key.where, key.outcome);
  }
  return lines.empty() ? "" : "warning: these keys have no effect, or another one than in DeepSpeed:\n" + lines;
}

Json explain_json(const Run& run) {
  Json document = Json::object();
  for (const Row& row : rows_of(run)) document.set(row.key, Json::object({{"value", row.value}, {"origin", row.origin}}));
  if (run.deepspeed.keys.empty()) return document;
  Json keys = Json::object();
  for (const DeepSpeedOutcome& key : run.deepspeed.keys)
    keys.set(key.key, Json::object({{"value", key.value}, {"where", key.where}, {"outcome", key.outcome}, {"differs", key.differs}}));
  document.set("deepspeed", Json::object({{"keys", std::move(keys)}, {"batch", run.deepspeed.equation}}));
  return document;
}

}  // namespace plimsoll::config
