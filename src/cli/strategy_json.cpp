#include "cli/strategy_json.h"

#include <string>

#include <fmt/format.h>

#include "config/fields.h"
#include "strategy/dimensions.h"

namespace plimsoll::cli {

namespace {

// Puts the value where "offload.params" says.
void put(base::Json& json, std::string_view key, base::Json value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) {
    json.set(key, std::move(value));
    return;
  }
  const base::Json* group = json.find(key.substr(0, dot));
  base::Json members = group == nullptr ? base::Json::object() : *group;
  put(members, key.substr(dot + 1), std::move(value));
  json.set(key.substr(0, dot), std::move(members));
}

}  // namespace

base::Json strategy_json(const planner::Choice& choice) {
  static const config::Run usual;
  config::Run run;
  run.strategy = choice.strategy;
  base::Json json = base::Json::object();
  for (const strategy::Dimension& dimension : strategy::dimensions()) {
    const config::Field& field = *config::find_field(fmt::format("strategy.{}", dimension.key));
    base::Json value = field.write(run);
    if (dimension.listed || value != field.write(usual)) put(json, dimension.key, std::move(value));
  }
  if (choice.strategy.more.empty()) return json;
  base::Json more = base::Json::object();
  for (const auto& [row, degree] : choice.strategy.more) more.set(row.axis.name(), base::Json(degree));
  json.set("axes", std::move(more));
  return json;
}

}  // namespace plimsoll::cli
