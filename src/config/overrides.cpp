#include "config/overrides.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/fields.h"
#include "config/other_names.h"
#include "config/problems.h"

namespace plimsoll::config {

namespace {

using base::Json;

std::string label_of(std::string_view argument) {
  constexpr std::size_t kLongest = 80;
  if (argument.size() <= kLongest) return fmt::format("{}{}", kSetPrefix, argument);
  return fmt::format("{}{}...", kSetPrefix, argument.substr(0, kLongest));
}

std::pair<std::string, std::string> split_key(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {"", std::string(path)};
  return {std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
}

// A bare word is a text: --set precision=bf16. What opens like JSON must be JSON, so that a mistake in it is shown.
Json parse_value(std::string_view text, const std::string& label, bool takes_text) {
  const base::JsonOptions options{.one_line = true};
  const auto as_text = [&] { return base::parse_json(base::quote_json(text), label, options); };
  const bool structured = !text.empty() && (text.front() == '"' || text.front() == '[' || text.front() == '{');
  if (structured) return base::parse_json(text, label, options);
  if (takes_text) return as_text();
  try {
    return base::parse_json(text, label, options);
  } catch (const base::Error&) {
    return as_text();
  }
}

// Steps down one key, making room for it: an absent group appears, a model's short form becomes its long one.
Json& enter(Json& parent, const std::string& path, const std::string& key, const std::string& label) {
  base::JsonMember* member = parent.members().find(key);
  if (member == nullptr) return parent.set(key, Json::object());
  Json& group = member->value;
  if (path == "model" && group.is_string()) {
    Json name = group;
    group = Json::object();
    group.set("preset", std::move(name));
  }
  if (!group.is_object()) {
    base::bad_input("{}: found {} for \"{}\" ({}), expected an object to set a key of; {}", label, group.describe(), path, group.where(),
                    path == "strategy" ? "give the whole strategy, such as --set 'strategy={\"data\": 2}'" : "mend it first");
  }
  return group;
}

// A setting of which only some family knows; whether the run's does is seen when it is read.
bool is_own_setting(std::string_view path, const std::vector<model::Family>& more_families) {
  constexpr std::string_view kGroup = "model.";
  if (!path.starts_with(kGroup)) return false;
  const auto knows = [&](model::Family family) {
    return std::ranges::any_of(family->own, [&](const families::Setting& own) { return own.key == path.substr(kGroup.size()); });
  };
  return std::ranges::any_of(more_families, knows) || std::ranges::any_of(families::all_families(), knows);
}

void apply_override(Json& document, std::string_view argument, const std::vector<model::Family>& more_families) {
  const std::string label = label_of(argument);
  const std::size_t equals = argument.find('=');
  if (equals == std::string_view::npos || equals == 0) base::bad_input("{}: found no \"=\" after a key, expected KEY=VALUE", label);
  const std::string path(argument.substr(0, equals));
  const Field* field = find_field(path);
  if (field == nullptr && !is_group(path) && !is_own_setting(path, more_families)) {
    const auto [group, key] = split_key(path);
    base::bad_input("{}: found the unknown key \"{}\", {}", label, path, known_keys_hint(group, key));
  }
  Json value = parse_value(argument.substr(equals + 1), label, field != nullptr && field->takes_text);
  Json* at = &document;
  std::size_t start = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; start = dot + 1, dot = path.find('.', start)) {
    at = &enter(*at, path.substr(0, dot), path.substr(start, dot - start), label);
  }
  at->set(path.substr(start), std::move(value));
}

}  // namespace

void apply_overrides(Json& document, const std::vector<std::string>& overrides, const std::vector<model::Family>& more_families) {
  Problems problems;
  for (const std::string& argument : overrides) problems.attempt([&] { apply_override(document, argument, more_families); });
  problems.raise();
}

std::string setting_named(std::string_view name) {
  if (find_field(name) != nullptr) return std::string(name);
  if (const OtherName* other = find_other_name(name)) return std::string(other->key);
  const auto found =
      std::find_if(fields().begin(), fields().end(), [&](const Field& field) { return split_key(field.key).second == name; });
  return found == fields().end() ? "" : found->key;
}

std::string known_keys_hint(std::string_view group, std::string_view key) {
  // "size" says something in "batch" alone.
  const OtherName* other = find_other_name(fmt::format("{}.{}", group, key));
  if (other == nullptr) other = find_other_name(key);
  if (other != nullptr)
    return fmt::format("expected \"{}\"{}", other->key, other->remark.empty() ? "" : fmt::format(" ({})", other->remark));
  const std::string parent = is_group(group) ? std::string(group) : std::string();
  const std::vector<std::string> siblings = keys_below(parent);
  std::string meant;
  if (parent == group) {
    meant = base::nearest_name(key, std::vector<std::string_view>(siblings.begin(), siblings.end()));
    if (!meant.empty() && !parent.empty()) meant = fmt::format("{}.{}", parent, meant);
  }
  if (meant.empty()) {
    std::vector<std::string_view> all;
    for (const Field& field : fields()) all.push_back(field.key);
    meant = base::nearest_name(group.empty() ? std::string(key) : fmt::format("{}.{}", group, key), all);
  }
  if (meant.empty()) {  // the right word in the wrong place: "lr" at the top means "optimizer.lr"
    const auto same_word = [&](const Field& field) { return split_key(field.key).second == key; };
    const auto elsewhere = std::find_if(fields().begin(), fields().end(), same_word);
    if (elsewhere != fields().end()) meant = elsewhere->key;
  }
  const std::string list = fmt::format("expected one of {}", fmt::join(siblings, ", "));
  return meant.empty() ? list : fmt::format("did you mean \"{}\"? {}", meant, list);
}

}  // namespace plimsoll::config
