#include "ops/fields.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <type_traits>

#include <fmt/ranges.h>

#include "ops/masks/rules.h"
#include "ops/op.h"

namespace plimsoll::ops {

namespace {

constexpr std::array<std::string_view, 5> kActivationNames{"none", "gelu_tanh", "gelu_erf", "relu", "silu"};
constexpr std::array<std::string_view, 2> kNormNames{"layer", "rms"};
constexpr std::array<std::string_view, 3> kTierNames{"device", "host", "disk"};
constexpr std::array<std::string_view, kCollectiveKinds> kCollectiveNames{"all_reduce", "reduce_scatter", "all_gather",
                                                                          "reduce",     "broadcast",      "all_to_all"};
constexpr std::string_view kNone = "none";
constexpr char kBetween = ':';  // extents of a shape, and other numbers of one value

[[noreturn]] void bad_value(std::string_view text) { base::bad_input("attribute: found \"{}\", which is not a legal value", text); }

template <typename Number>
Number number_from(std::string_view text, int number_base = 10) {
  Number value{};
  std::from_chars_result result{};
  if constexpr (std::is_floating_point_v<Number>) {
    result = std::from_chars(text.data(), text.data() + text.size(), value);
  } else {
    result = std::from_chars(text.data(), text.data() + text.size(), value, number_base);
  }
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size()) bad_value(text);
  return value;
}

template <typename Enum, std::size_t kCount>
Enum enum_from(std::string_view text, const std::array<std::string_view, kCount>& names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) bad_value(text);
  return static_cast<Enum>(found - names.begin());
}

// Of a type whose values name themselves.
template <typename Enum>
Enum enum_from(std::string_view text, int count) {
  for (int index = 0; index < count; ++index) {
    if (name_of(static_cast<Enum>(index)) == text) return static_cast<Enum>(index);
  }
  bad_value(text);
}

template <typename Number>
std::vector<Number> numbers_from(std::string_view text) {
  std::vector<Number> numbers;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(kBetween), text.size());
    numbers.push_back(number_from<Number>(text.substr(0, end)));
    text = text.substr(std::min(end + 1, text.size()));
  }
  return numbers;
}

}  // namespace

std::string_view name_of(Tier tier) { return kTierNames.at(static_cast<std::size_t>(tier)); }
std::string_view name_of(CollectiveKind kind) { return kCollectiveNames.at(static_cast<std::size_t>(kind)); }

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int value) { return fmt::format("{}", value); }
std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(std::uint64_t value) { return fmt::format("{:#x}", value); }
std::string text_of(float value) { return fmt::format("{}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::vector<double>& value) { return fmt::format("{}", fmt::join(value, std::string_view(&kBetween, 1))); }
std::string text_of(base::DType value) { return std::string(base::name_of(value)); }
std::string text_of(const std::optional<base::DType>& value) { return value ? text_of(*value) : std::string(kNone); }
std::string text_of(ActivationKind value) { return std::string(kActivationNames.at(static_cast<std::size_t>(value))); }
std::string text_of(NormKind value) { return std::string(kNormNames.at(static_cast<std::size_t>(value))); }
std::string text_of(const Axis& value) { return std::string(value.name()); }
std::string text_of(const std::vector<Axis>& value) {
  std::string text;
  for (const Axis& axis : value) text += fmt::format("{}{}", text.empty() ? "" : ":", axis.name());
  return text.empty() ? std::string(kNone) : text;
}
std::string text_of(Tier value) { return std::string(name_of(value)); }
std::string text_of(CollectiveKind value) { return std::string(name_of(value)); }
std::string text_of(const FormInfo* value) { return std::string(value->name); }
std::string text_of(State::Cut value) { return std::string(name_of(value)); }
std::string text_of(State::Merge value) { return std::string(name_of(value)); }
std::string text_of(State::Written value) { return std::string(name_of(value)); }
std::string text_of(const base::Shape& value) { return fmt::format("{}", fmt::join(value.dims(), std::string_view(&kBetween, 1))); }
std::string text_of(const Heads& value) { return fmt::format("{}:{}:{}", value.query, value.kv, value.dim); }

std::string text_of(const MaskPattern& value) {
  if (value.rule == nullptr) return std::string(kNone);
  std::string text(value.rule->name);
  for (std::size_t index = 0; index < value.rule->numbers.size(); ++index) text += kBetween + fmt::format("{}", value.numbers[index]);
  return text;
}

void parse_into(std::string_view text, bool& value) {
  if (text != "true" && text != "false") bad_value(text);
  value = text == "true";
}
void parse_into(std::string_view text, int& value) { value = number_from<int>(text); }
void parse_into(std::string_view text, std::int64_t& value) { value = number_from<std::int64_t>(text); }
void parse_into(std::string_view text, std::uint64_t& value) {
  if (!text.starts_with("0x")) bad_value(text);
  value = number_from<std::uint64_t>(text.substr(2), 16);
}
void parse_into(std::string_view text, float& value) { value = number_from<float>(text); }
void parse_into(std::string_view text, double& value) { value = number_from<double>(text); }
void parse_into(std::string_view text, std::vector<double>& value) { value = numbers_from<double>(text); }
void parse_into(std::string_view text, base::DType& value) {
  const std::optional<base::DType> dtype = base::dtype_from_name(text);
  if (!dtype) bad_value(text);
  value = *dtype;
}
void parse_into(std::string_view text, std::optional<base::DType>& value) {
  value.reset();
  if (text != kNone) parse_into(text, value.emplace());
}
void parse_into(std::string_view text, ActivationKind& value) { value = enum_from<ActivationKind>(text, kActivationNames); }
void parse_into(std::string_view text, NormKind& value) { value = enum_from<NormKind>(text, kNormNames); }
// Which axes there are is for the plan's mesh to say.
void parse_into(std::string_view text, Axis& value) {
  const std::optional<Axis> axis = Axis::named(text);
  if (!axis) bad_value(text);
  value = *axis;
}
void parse_into(std::string_view text, std::vector<Axis>& value) {
  value.clear();
  while (text != kNone && !text.empty()) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    parse_into(text.substr(0, colon), value.emplace_back());
    text = text.substr(std::min(colon + 1, text.size()));
  }
}
void parse_into(std::string_view text, Tier& value) { value = enum_from<Tier>(text, kTierNames); }
void parse_into(std::string_view text, CollectiveKind& value) { value = enum_from<CollectiveKind>(text, kCollectiveNames); }
void parse_into(std::string_view text, const FormInfo*& value) {
  value = find_form(text);
  if (value == nullptr) bad_value(text);
}
void parse_into(std::string_view text, State::Cut& value) { value = enum_from<State::Cut>(text, kStateCuts); }
void parse_into(std::string_view text, State::Merge& value) { value = enum_from<State::Merge>(text, kStateMerges); }
void parse_into(std::string_view text, State::Written& value) { value = enum_from<State::Written>(text, kStateWriters); }
void parse_into(std::string_view text, base::Shape& value) {
  const std::vector<std::int64_t> dims = numbers_from<std::int64_t>(text);
  double elements = 1.0;
  for (const std::int64_t extent : dims) {
    elements *= static_cast<double>(extent);
    if (extent < 0 || elements > 1e17) bad_value(text);
  }
  if (dims.size() > base::Shape::kMaxDims) bad_value(text);
  value = base::Shape(std::span<const std::int64_t>(dims));
}
void parse_into(std::string_view text, Heads& value) {
  const std::vector<std::int64_t> numbers = numbers_from<std::int64_t>(text);
  if (numbers.size() != 3) bad_value(text);
  value = {.query = numbers[0], .kv = numbers[1], .dim = numbers[2]};
  if (value.query < 1 || value.kv < 1 || value.dim < 1 || value.query % value.kv != 0) bad_value(text);
}

// The rule's name, and its numbers.
void parse_into(std::string_view text, MaskPattern& value) {
  value = {};
  if (text == kNone) return;
  const std::size_t colon = std::min(text.find(kBetween), text.size());
  value.rule = find_mask_rule(text.substr(0, colon));
  const auto numbers = numbers_from<std::int64_t>(text.substr(std::min(colon + 1, text.size())));
  if (value.rule == nullptr || numbers.size() != value.rule->numbers.size()) bad_value(text);
  std::copy(numbers.begin(), numbers.end(), value.numbers.begin());
  if (const std::string problem = problem_of(value); !problem.empty()) base::bad_input("attribute: {}", problem);
}

NamedList named_list(std::string_view text) {
  const std::size_t open = text.find('(');
  if (open == std::string_view::npos) return {text};
  if (!text.ends_with(')')) base::bad_input("\"{}\": expected a closing parenthesis", text);
  return {text.substr(0, open), text.substr(open + 1, text.size() - open - 2)};
}

}  // namespace plimsoll::ops
