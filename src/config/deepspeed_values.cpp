#include "config/deepspeed_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

namespace plimsoll::config {

namespace {

using base::Json;
using base::JsonMember;

std::optional<Json> flag_of(const Json& value) {
  constexpr std::array<std::string_view, 6> kYes{"true", "1", "yes", "on", "t", "y"};
  constexpr std::array<std::string_view, 6> kNo{"false", "0", "no", "off", "f", "n"};
  if (value.is_number() && (value.as_double() == 0.0 || value.as_double() == 1.0)) return Json(value.as_double() == 1.0);
  if (!value.is_string() || value.as_string().size() > 5) return std::nullopt;
  std::string word = value.as_string();
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  if (std::find(kYes.begin(), kYes.end(), word) != kYes.end()) return Json(true);
  if (std::find(kNo.begin(), kNo.end(), word) != kNo.end()) return Json(false);
  return std::nullopt;
}

std::optional<Json> number_of(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.as_string();
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  if (const auto [last, error] = std::from_chars(text.data(), end, integer); last == end && error == std::errc{}) return Json(integer);
  double number = 0.0;
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (last != end || error != std::errc{} || !std::isfinite(number)) return std::nullopt;
  return Json(number);
}

bool is_on(const Json& value) { return value.is_bool() ? value.as_bool() : flag_of(value) == Json(true); }

// A block is switched on by a member "enabled" at any depth. Depth is bounded by the parser.
bool enabled(const Json& value) {
  if (!value.is_object()) return is_on(value);
  for (const JsonMember& member : value.as_object()) {
    if (member.key == "enabled" ? is_on(member.value) : member.value.is_object() && enabled(member.value)) return true;
  }
  return false;
}

bool same(const Json& value, const Json& usual) {
  if (value.is_number() && usual.is_number()) return value.as_double() == usual.as_double();
  return value == usual;
}

}  // namespace

bool is_auto(const Json& value) { return value.is_null() || (value.is_string() && value.as_string() == "auto"); }

std::optional<Json> converted(const Json& value, Takes takes) {
  if (fits(value, takes)) return std::nullopt;
  if (takes == Takes::flag) return flag_of(value);
  if (takes == Takes::count || takes == Takes::number) return number_of(value);
  return std::nullopt;
}

bool fits(const Json& value, Takes takes) {
  switch (takes) {
    case Takes::flag: return value.is_bool();
    // A fraction comes of somebody's arithmetic (0.9 x hidden^2); a negative amount of a mistake.
    case Takes::count: return value.is_integer() && value.as_double() >= 0.0;
    case Takes::number: return value.is_number();
    case Takes::text: return value.is_string();
    case Takes::list: return value.is_array();
    case Takes::anything: return true;
  }
  return false;
}

std::string_view name_of(Takes takes) {
  switch (takes) {
    case Takes::flag: return "true or false";
    case Takes::count: return "an integer >= 0";
    case Takes::number: return "a number";
    case Takes::text: return "a text";
    case Takes::list: return "an array";
    case Takes::anything: return "anything";
  }
  return "?";
}

bool is_usual(const Json& value, const DeepSpeedKey& key) {
  if (key.usual.empty()) return value.is_object() && !enabled(value);
  const Json usual = base::parse_json(key.usual, "usual");
  if (!usual.is_object()) return same(value, usual);
  for (const JsonMember& member : usual.as_object()) {
    const Json* found = value.is_object() ? value.find(member.key) : nullptr;
    if (found == nullptr || !(*found == member.value)) return false;
  }
  return true;
}

}  // namespace plimsoll::config
