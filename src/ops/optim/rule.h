// An update rule: what an optimizer does to a parameter, in one file each (adam.h, sgd.h, ...). A rule is a struct that states
//
//   kNumbers          the settings it has beside the learning rate and the weight decay,
//   kStates           what it keeps for each element,
//   kFlops            per element,
//   kDecaysApart      where weights decay apart from the gradient,
//   Step<T>           the numbers that are the same for all elements of a step, made by step(): in double, rounded once,
//   element()         the update of one element, in operations that round once (arithmetic.h).
//
// A rule that must know something of the whole parameter before it changes an element has a prelude, which reads what the update reads and
// writes nothing of it:
//
//   kSums             sums over all elements (LAMB's norms); summands() gives an element's, and scale() takes the sums into the step, or
//   kMatrix           the parameter as a matrix: direction() gives each element of it, made whole and orthogonal (ops/prelude.h), and
//                     element() gets that beside the gradient. Parameters that are no matrices follow the rule kOtherwise.
//
// Whoever cuts a parameter adds up the sums of its pieces, or puts the matrix together from them.
//
// row_of makes a row of it for the table of rules (rules.h), or for code outside that hands it to an optimizer. Everybody else - the
// operator `update`, its kernels, the run file, DeepSpeed's translation - asks the row; the arithmetic is a template, compiled here for
// each instruction set and, in double, for the reference, and by kernels/cuda for the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/row_code.h"
#include "ops/optim/arithmetic.h"

namespace plimsoll::ops {

// A setting, "optimizer.NAME" in the run file; beta1 and beta2 are the two of "optimizer.betas".
struct RuleNumber {
  std::string_view name;
  std::string_view about;  // one sentence
  double usual = 0.0;      // where the run does not say
  double least = 0.0;      // smallest legal value
  bool below_one = false;  // a rate: less than 1
  bool whole = false;      // no fractions
  double peer = -1.0;      // PyTorch's and DeepSpeed's default, where it is another

  double peer_usual() const { return peer >= 0.0 ? peer : usual; }
};

struct RuleState {
  std::string_view name;
  bool never_negative = false;  // so its sign may hold a bit of something else (forms/split.h)
};

inline constexpr std::size_t kMostRuleNumbers = 6;
inline constexpr std::size_t kMostRuleStates = 2;
inline constexpr std::size_t kMostRuleSums = 2;
// Which state's signs a split weight uses.
inline constexpr std::size_t kSignState = 1;

// By place in the rule's list.
using RuleNumbers = std::array<double, kMostRuleNumbers>;

// What a step of a rule is worked out from.
struct RuleInputs {
  RuleNumbers numbers{};
  double weight_decay = 0.0;
  double learning_rate = 0.0;
  float multiplier = 1.0f;  // of gradients: clip factor / loss scale
  std::int64_t update = 1;  // t
};

// A step's numbers, whatever the rule.
struct RuleStep {
  alignas(64) std::array<std::byte, 128> bytes;
};

// Elements that lie together, in f32.
template <typename T>
struct RuleSpan {
  const T* gradient = nullptr;
  T* weight = nullptr;
  std::array<T*, kMostRuleStates> state{};
  std::int64_t count = 0;
  // Of a rule with a matrix: written by its prelude, read by its update.
  T* direction = nullptr;
};

// What a rule wants of the whole parameter before it updates.
enum class Prelude : std::uint8_t { none, sums, matrix };

// A step's sums, of the whole parameter.
using RuleSums = std::array<double, kMostRuleSums>;

struct UpdateRule {
  std::string_view name;   // "adamw": of optimizer.type; the operator is printed as adamw_update
  std::string_view about;  // a few words
  std::span<const RuleNumber> numbers;
  std::span<const RuleState> states;
  int flops = 0;                    // per element
  double usual_weight_decay = 0.0;  // where the run does not say
  bool decays_apart = false;        // from the gradient
  // How DeepSpeed calls it, in any letters, and the learning rate that it and PyTorch have where none is given.
  std::span<const std::string_view> deepspeed{};
  double peer_lr = 1e-3;

  RuleStep (*prepare)(const RuleInputs& inputs) = nullptr;
  using Code = base::CodeOf<void (*)(const RuleStep& step, const RuleSpan<float>& span)>;
  using SumCode = base::CodeOf<void (*)(const RuleStep& step, const RuleSpan<float>& span, float* sums)>;
  Code update{};
  void (*reference)(const RuleInputs& inputs, const RuleSums* sums, const RuleSpan<double>& span) = nullptr;

  // ---- of a rule with a prelude

  Prelude prelude = Prelude::none;
  std::size_t sums = 0;          // how many
  std::string_view otherwise{};  // the rule of what is no matrix
  void (*scale)(RuleStep& step, const RuleSums& sums) = nullptr;
  SumCode sum_block{};  // of at most kSumBlock elements
  Code direct{};
  void (*reference_sums)(const RuleInputs& inputs, const RuleSpan<double>& span, RuleSums& sums) = nullptr;
  void (*reference_direct)(const RuleInputs& inputs, const RuleSpan<double>& span) = nullptr;

  RuleNumbers usual() const {
    RuleNumbers values{};
    for (std::size_t index = 0; index < numbers.size(); ++index) values[index] = numbers[index].usual;
    return values;
  }
  // Where in the list; -1: the rule has no such setting.
  int place_of(std::string_view number) const {
    for (std::size_t index = 0; index < numbers.size(); ++index) {
      if (numbers[index].name == number) return static_cast<int>(index);
    }
    return -1;
  }
  // A state whose signs are free, which a split weight needs.
  bool has_signs() const { return states.size() > kSignState && states[kSignState].never_negative; }
};

// ---- settings that several rules have

inline constexpr RuleNumber kFirstBeta{
    .name = "beta1", .about = "Decay rate of the average of gradients.", .usual = 0.9, .below_one = true};
inline constexpr RuleNumber kSecondBeta{
    .name = "beta2", .about = "Decay rate of the average of squared gradients.", .usual = 0.95, .below_one = true, .peer = 0.999};
inline constexpr RuleNumber kEps{.name = "eps", .about = "Added to the denominator.", .usual = 1e-8, .least = 1e-37};

// ---- from a rule to its row

namespace detail {

template <typename Rule>
consteval Prelude prelude_of() {
  if constexpr (requires { Rule::kSums; }) return Prelude::sums;
  if constexpr (requires { Rule::kMatrix; }) return Prelude::matrix;
  return Prelude::none;
}

template <typename Rule>
consteval std::size_t sums_of() {
  if constexpr (requires { Rule::kSums; }) return Rule::kSums;
  return 0;
}

template <typename Rule>
consteval std::string_view otherwise_of() {
  if constexpr (requires { Rule::kOtherwise; }) return Rule::kOtherwise;
  return {};
}

template <typename Rule>
consteval bool decays_apart() {
  if constexpr (requires { Rule::kDecaysApart; }) return Rule::kDecaysApart;
  return false;
}

// The update of one element, with its part of the matrix where the rule has one.
template <typename Rule, typename T>
PLIMSOLL_HOST_DEVICE inline void update_element(const typename Rule::template Step<T>& step, T gradient, T& weight, T* state,
                                                [[maybe_unused]] T direction) {
  if constexpr (prelude_of<Rule>() == Prelude::matrix) {
    Rule::element(step, gradient, weight, state, direction);
  } else {
    Rule::element(step, gradient, weight, state);
  }
}

// What an update reads and writes of one tensor, element by element. Tensors of an update do not overlap.
template <typename Rule, typename T>
struct Elements {
  static constexpr std::size_t kStates = Rule::kStates.size();
  const T* __restrict gradient;
  T* __restrict weight;
  T* __restrict first;
  T* __restrict second;
  T* __restrict direction;

  explicit Elements(const RuleSpan<T>& span)
      : gradient(span.gradient), weight(span.weight), first(span.state[0]), second(span.state[1]), direction(span.direction) {}

  [[gnu::always_inline]] void read(std::int64_t index, T& w, T (&state)[kMostRuleStates]) const {
    w = weight[index];
    if constexpr (kStates > 0) state[0] = first[index];
    if constexpr (kStates > 1) state[1] = second[index];
  }
  [[gnu::always_inline]] void write(std::int64_t index, T w, const T (&state)[kMostRuleStates]) const {
    weight[index] = w;
    if constexpr (kStates > 0) first[index] = state[0];
    if constexpr (kStates > 1) second[index] = state[1];
  }
};

template <typename Rule, typename T>
[[gnu::always_inline]] inline void update_span(const typename Rule::template Step<T>& step, const RuleSpan<T>& span) {
  const typename Rule::template Step<T> s = step;
  const Elements<Rule, T> elements(span);
  for (std::int64_t index = 0; index < span.count; ++index) {
    T weight, state[kMostRuleStates] = {}, of_matrix = T(0);
    elements.read(index, weight, state);
    if constexpr (prelude_of<Rule>() == Prelude::matrix) of_matrix = elements.direction[index];
    update_element<Rule, T>(s, elements.gradient[index], weight, state, of_matrix);
    elements.write(index, weight, state);
  }
}

template <typename Rule, typename T>
[[gnu::always_inline]] inline void direct_span(const typename Rule::template Step<T>& step, const RuleSpan<T>& span) {
  const typename Rule::template Step<T> s = step;
  const Elements<Rule, T> elements(span);
  for (std::int64_t index = 0; index < span.count; ++index) {
    T weight, state[kMostRuleStates] = {};
    elements.read(index, weight, state);
    elements.direction[index] = Rule::direction(s, elements.gradient[index], weight, state);
  }
}

// Adds each element's terms to sums[sum][lane], of `count` elements from `first` on.
template <typename Rule, typename T, std::size_t kLanes>
[[gnu::always_inline]] inline void add_terms(const typename Rule::template Step<T>& step, const Elements<Rule, T>& elements,
                                             std::int64_t first, std::int64_t count, T (&sums)[Rule::kSums][kLanes]) {
  for (std::int64_t lane = 0; lane < count; ++lane) {
    T weight, state[kMostRuleStates] = {}, terms[Rule::kSums];
    elements.read(first + lane, weight, state);
    Rule::summands(step, elements.gradient[first + lane], weight, state, terms);
    for (std::size_t sum = 0; sum < Rule::kSums; ++sum) sums[sum][lane] = plus(sums[sum][lane], terms[sum]);
  }
}

// A block's sums, in the order that all sums over blocks have (kernels/cpu/scalars.cpp).
template <typename Rule>
[[gnu::always_inline]] inline void sum_span(const typename Rule::template Step<float>& step, const RuleSpan<float>& span, float* sums) {
  constexpr std::int64_t kPartials = 16;
  const typename Rule::template Step<float> s = step;
  const Elements<Rule, float> elements(span);
  float partial[Rule::kSums][kPartials] = {};
  std::int64_t first = 0;
  for (; first + kPartials <= span.count; first += kPartials) add_terms<Rule, float, kPartials>(s, elements, first, kPartials, partial);
  add_terms<Rule, float, kPartials>(s, elements, first, span.count - first, partial);
  for (std::size_t sum = 0; sum < Rule::kSums; ++sum) {
    for (std::int64_t half = kPartials / 2; half > 0; half /= 2) {
      for (std::int64_t lane = 0; lane < half; ++lane) partial[sum][lane] = plus(partial[sum][lane], partial[sum][lane + half]);
    }
    sums[sum] = partial[sum][0];
  }
}

template <typename Rule>
const typename Rule::template Step<float>& step_in(const RuleStep& step) {
  return *reinterpret_cast<const typename Rule::template Step<float>*>(step.bytes.data());
}

PLIMSOLL_ROW_CODE(update, (const RuleStep& step, const RuleSpan<float>& span), (update_span<Row, float>(step_in<Row>(step), span)))
PLIMSOLL_ROW_CODE(direct, (const RuleStep& step, const RuleSpan<float>& span), (direct_span<Row, float>(step_in<Row>(step), span)))
PLIMSOLL_ROW_CODE(sum, (const RuleStep& step, const RuleSpan<float>& span, float* sums), (sum_span<Row>(step_in<Row>(step), span, sums)))

template <typename Rule>
RuleStep prepare(const RuleInputs& inputs) {
  const auto step = Rule::template step<float>(inputs);
  static_assert(sizeof step <= sizeof(RuleStep) && std::is_trivially_copyable_v<decltype(step)>);
  RuleStep bytes{};
  std::memcpy(bytes.bytes.data(), &step, sizeof step);
  return bytes;
}

template <typename Rule>
void scale(RuleStep& step, const RuleSums& sums) {
  auto scaled = step_in<Rule>(step);
  Rule::scale(scaled, sums.data());
  std::memcpy(step.bytes.data(), &scaled, sizeof scaled);
}

template <typename Rule>
void update_reference(const RuleInputs& inputs, [[maybe_unused]] const RuleSums* sums, const RuleSpan<double>& span) {
  auto step = Rule::template step<double>(inputs);
  if constexpr (prelude_of<Rule>() == Prelude::sums) {
    if (sums != nullptr) Rule::scale(step, sums->data());
  }
  update_span<Rule, double>(step, span);
}

template <typename Rule>
void sum_reference(const RuleInputs& inputs, const RuleSpan<double>& span, RuleSums& sums) {
  const auto step = Rule::template step<double>(inputs);
  const Elements<Rule, double> elements(span);
  double all[Rule::kSums][1] = {};
  for (std::int64_t index = 0; index < span.count; ++index) add_terms<Rule, double, 1>(step, elements, index, 1, all);
  for (std::size_t sum = 0; sum < Rule::kSums; ++sum) sums[sum] += all[sum][0];
}

template <typename Rule>
void direct_reference(const RuleInputs& inputs, const RuleSpan<double>& span) {
  direct_span<Rule, double>(Rule::template step<double>(inputs), span);
}

}  // namespace detail

template <typename Rule>
constexpr UpdateRule row_of() {
  static_assert(Rule::kNumbers.size() <= kMostRuleNumbers && Rule::kStates.size() <= kMostRuleStates);
  static_assert(detail::sums_of<Rule>() <= kMostRuleSums);
  constexpr Prelude kPrelude = detail::prelude_of<Rule>();
  UpdateRule row{.name = Rule::kName,
                 .about = Rule::kAbout,
                 .numbers = Rule::kNumbers,
                 .states = Rule::kStates,
                 .flops = Rule::kFlops,
                 .usual_weight_decay = Rule::kWeightDecay,
                 .decays_apart = detail::decays_apart<Rule>(),
                 .deepspeed = Rule::kDeepSpeed,
                 .peer_lr = Rule::kPeerLr,
                 .prepare = detail::prepare<Rule>,
                 .update = {{detail::update_plain<Rule>, detail::update_avx2<Rule>, detail::update_avx512<Rule>}},
                 .reference = detail::update_reference<Rule>,
                 .prelude = kPrelude,
                 .sums = detail::sums_of<Rule>(),
                 .otherwise = detail::otherwise_of<Rule>()};
  if constexpr (kPrelude == Prelude::sums) {
    row.scale = detail::scale<Rule>;
    row.sum_block = {{detail::sum_plain<Rule>, detail::sum_avx2<Rule>, detail::sum_avx512<Rule>}};
    row.reference_sums = detail::sum_reference<Rule>;
  }
  if constexpr (kPrelude == Prelude::matrix) {
    row.direct = {{detail::direct_plain<Rule>, detail::direct_avx2<Rule>, detail::direct_avx512<Rule>}};
    row.reference_direct = detail::direct_reference<Rule>;
  }
  return row;
}

}  // namespace plimsoll::ops
