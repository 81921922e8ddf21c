#include "formats/tokenizer/json_parts.h"

#include "base/error.h"
#include "formats/tokenizer/tables.h"

namespace plimsoll::formats::tokenizer {

using base::Json;

const std::string& type_of(const Json& json) { return json.at("type").as_string(); }

bool flag(const Json& json, std::string_view key, bool otherwise) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? otherwise : value->as_bool();
}

std::string text(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value == nullptr || value->is_null() ? std::string() : value->as_string();
}

std::int32_t read_id(const Json& json) {
  const std::int64_t id = json.as_integer();
  if (id < 0 || id >= kMostTokens) json.fail_expected(fmt::format("an id from 0 to {}", kMostTokens - 1));
  return static_cast<std::int32_t>(id);
}

std::unique_ptr<Pattern> read_pattern(const Json& json) {
  if (const Json* literal = json.find("String")) return literal_pattern(literal->as_string());
  if (const Json* regex = json.find("Regex")) return regex_pattern(regex->as_string(), regex->where());
  json.fail_expected("an object with \"String\" or \"Regex\"");
}

void unsupported(const Json& json, std::string_view part, std::string_view name) {
  base::bad_input("{}: the {} \"{}\" is not supported; encode the text with the tool that made this tokenizer and give the token files",
                  json.where(), part, name);
}

}  // namespace plimsoll::formats::tokenizer
