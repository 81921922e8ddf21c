// One setting of the run file: its key, what it takes, what it means, and how it is read into and written from a Run.
//
// The table of all fields (fields.h) is the only place that knows the keys. Reading, range checks, --set, unknown-key
// messages, `explain`, the documentation and shell completion are loops over it. Simple settings are bound by the
// functions below, with the type of the member they are given; the few with a form of their own fill a Field by hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json.h"
#include "config/choices.h"
#include "config/run.h"

namespace plimsoll::config {

// The largest figures that are taken for meant.
inline constexpr std::int64_t kMostTokens = 100'000'000;

// Which model families a setting means something to. Others accept it only with the value it has anyway.
enum class Families : std::uint8_t { gpt2 = 1, llama = 2, bert = 4, gpt2_bert = 5, llama_bert = 6, all = 7 };

inline bool includes(Families families, model::Family family) {
  return ((static_cast<unsigned>(families) >> static_cast<unsigned>(family)) & 1u) != 0;
}

struct Field {
  std::string key = {};                   // "optimizer.lr"
  std::string about = {};                 // one sentence for the documentation
  std::string expects = {};               // "an integer >= 1"; ends "found ..., expected ..."
  std::vector<std::string> choices = {};  // the words it takes, where they are few
  std::string derived = {};               // how an absent value is worked out from others; empty when the default is fixed
  Families families = Families::all;
  bool takes_text = false;  // --set hands the text over as it is, even where it looks like a number

  // Puts the value in its place, or returns false when it is not what `expects` says.
  std::function<bool(const base::Json& value, Run& run)> read = {};
  std::function<base::Json(const Run& run)> write = {};  // null: has no value

  Field with_families(Families which) && {
    families = which;
    return std::move(*this);
  }
  Field derived_from(std::string how) && {
    derived = std::move(how);
    return std::move(*this);
  }
};

struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;
  // Far above anything meant: keeps products of sizes within 64 bits. Mentioned only to those who pass it.
  double ceiling = std::numeric_limits<double>::infinity();

  bool contains(double value) const {
    return std::isfinite(value) && (above_min ? value > min : value >= min) && (below_max ? value < max : value <= max);
  }
};

inline Range at_least(double min) { return {.min = min}; }
inline Range above(double min) { return {.min = min, .above_min = true}; }
inline Range count_from(double min, double ceiling) { return {.min = min, .ceiling = ceiling}; }
// What kernels take as an f32 that is neither infinite nor lost.
inline Range f32_from(double min) { return {.min = min, .ceiling = 1e37}; }
inline Range between(double min, double max) { return {.min = min, .max = max}; }
inline Range rate() { return {.min = 0.0, .max = 1.0, .below_max = true}; }

std::string expects_integer(const Range& range);
std::string expects_number(const Range& range);
std::string expects_choice(const std::vector<std::string>& choices);
base::Json bytes_to_json(base::Bytes amount);  // "8GiB" where that is exact, else the count
bool read_bytes(const base::Json& value, base::Bytes& amount);

// "FILE:LINE:COL: found VALUE for "KEY", expected EXPECTED", thrown as bad_input.
[[noreturn]] void fail_value(const base::Json& value, std::string_view key, std::string_view expected);

// The accessor of a setting. A macro, because it must serve Run& and const Run& alike and stay short in the table.
#define PLIMSOLL_AT(MEMBER) [](auto& run) -> auto& { return run.MEMBER; }

// number_field("optimizer.lr", PLIMSOLL_AT(optimizer.lr), at_least(0.0), "Peak learning rate.")
template <typename Get>
Field number_field(std::string key, Get get, const Range& range, std::string about) {
  using T = std::remove_cvref_t<std::invoke_result_t<Get, Run&>>;
  static_assert(std::is_same_v<T, std::int64_t> || std::is_same_v<T, double>);
  constexpr bool kInteger = std::is_same_v<T, std::int64_t>;
  Field field{.key = std::move(key), .about = std::move(about), .expects = kInteger ? expects_integer(range) : expects_number(range)};
  field.read = [get, range, name = field.key](const base::Json& value, Run& run) {
    if (kInteger ? !value.is_integer() : !value.is_number()) return false;
    if (!range.contains(value.as_double())) return false;
    if (value.as_double() > range.ceiling) fail_value(value, name, fmt::format("at most {}", range.ceiling));
    if constexpr (kInteger) {
      get(run) = value.as_integer();
    } else {
      get(run) = value.as_double();
    }
    return true;
  };
  field.write = [get](const Run& run) { return base::Json(get(run)); };
  return field;
}

template <typename Get>
Field flag_field(std::string key, Get get, std::string about) {
  Field field{.key = std::move(key), .about = std::move(about), .expects = "true or false", .choices = {"true", "false"}};
  field.read = [get](const base::Json& value, Run& run) {
    if (!value.is_bool()) return false;
    get(run) = value.as_bool();
    return true;
  };
  field.write = [get](const Run& run) { return base::Json(get(run)); };
  return field;
}

template <typename Get>
Field text_field(std::string key, Get get, std::string expects, std::string about) {
  Field field{.key = std::move(key), .about = std::move(about), .expects = std::move(expects), .takes_text = true};
  field.read = [get](const base::Json& value, Run& run) {
    // A NUL would cut a path short where the operating system reads it.
    if (!value.is_string() || value.as_string().find('\0') != std::string::npos) return false;
    get(run) = value.as_string();
    return true;
  };
  field.write = [get](const Run& run) { return base::Json(get(run)); };
  return field;
}

template <typename Get>
Field bytes_field(std::string key, Get get, std::string about) {
  Field field{.key = std::move(key), .about = std::move(about), .expects = "an amount such as \"8GiB\", \"25MB\" or a count of bytes"};
  field.read = [get](const base::Json& value, Run& run) { return read_bytes(value, get(run)); };
  field.write = [get](const Run& run) { return bytes_to_json(get(run)); };
  return field;
}

template <typename Get>
Field choice_field(std::string key, Get get, std::string about) {
  using E = std::remove_cvref_t<std::invoke_result_t<Get, Run&>>;
  Field field{.key = std::move(key), .about = std::move(about)};
  for (const auto& choice : Choices<E>::kTable) field.choices.emplace_back(choice.name);
  field.expects = expects_choice(field.choices);
  field.takes_text = true;
  field.read = [get](const base::Json& value, Run& run) {
    if (!value.is_string()) return false;
    for (const auto& choice : Choices<E>::kTable) {
      if (choice.name != value.as_string()) continue;
      get(run) = choice.value;
      return true;
    }
    return false;
  };
  field.write = [get](const Run& run) { return base::Json(choice_name(get(run))); };
  return field;
}

}  // namespace plimsoll::config
