// An update rule: what an optimizer does to a parameter, in one file each (adam.h, sgd.h, ...). A rule is a struct that states
//
//   kNumbers          the settings it has beside the learning rate and the weight decay,
//   kStates           what it keeps for each element,
//   kFlops            per element,
//   Step<T>           the numbers that are the same for all elements of a step, made by step(): in double, rounded once,
//   element()         the update of one element, in operations that round once (arithmetic.h).
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

#include "ops/optim/arithmetic.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

// A setting, "optimizer.NAME" in the run file; beta1 and beta2 are the two of "optimizer.betas".
struct RuleNumber {
  std::string_view name;
  std::string_view about;  // one sentence
  double usual = 0.0;      // where the run does not say
  double least = 0.0;      // smallest legal value
  bool below_one = false;  // a rate: less than 1
  double peer = -1.0;      // PyTorch's and DeepSpeed's default, where it is another

  double peer_usual() const { return peer >= 0.0 ? peer : usual; }
};

struct RuleState {
  std::string_view name;
  bool never_negative = false;  // so its sign may hold a bit of something else (forms/split.h)
};

inline constexpr std::size_t kMostRuleNumbers = 6;
inline constexpr std::size_t kMostRuleStates = 2;
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

PLIMSOLL_HOST_DEVICE inline RuleInputs rule_inputs(const RuleNumbers& numbers, double rate, double weight_decay,
                                                   const StepScalars& scalars) {
  const double learning_rate = times(static_cast<double>(scalars.learning_rate), rate);
  return {numbers, weight_decay, learning_rate, scalars.gradient_multiplier, scalars.updates + 1};
}

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
};

// Instruction sets for which a row has code.
enum class RuleCode : std::uint8_t { plain, avx2, avx512 };
inline constexpr std::size_t kRuleCodes = 3;

struct UpdateRule {
  std::string_view name;   // "adamw": of optimizer.type; the operator is printed as adamw_update
  std::string_view about;  // a few words
  std::span<const RuleNumber> numbers;
  std::span<const RuleState> states;
  int flops = 0;                    // per element
  double usual_weight_decay = 0.0;  // where the run does not say
  // How DeepSpeed calls it, in small letters, and the learning rate that it and PyTorch have where none is given.
  std::span<const std::string_view> deepspeed{};
  double peer_lr = 1e-3;

  RuleStep (*prepare)(const RuleInputs& inputs) = nullptr;
  std::array<void (*)(const RuleStep& step, const RuleSpan<float>& span), kRuleCodes> update{};
  void (*reference)(const RuleInputs& inputs, const RuleSpan<double>& span) = nullptr;

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

template <typename Rule, typename T>
[[gnu::always_inline]] inline void update_span(const typename Rule::template Step<T>& step, const RuleSpan<T>& span) {
  constexpr std::size_t kStates = Rule::kStates.size();
  const typename Rule::template Step<T> s = step;
  // Tensors of an update do not overlap.
  const T* __restrict gradient = span.gradient;
  T* __restrict weight = span.weight;
  T* __restrict first = span.state[0];
  T* __restrict second = span.state[1];
  for (std::int64_t index = 0; index < span.count; ++index) {
    T w = weight[index];
    T state[kMostRuleStates] = {};
    if constexpr (kStates > 0) state[0] = first[index];
    if constexpr (kStates > 1) state[1] = second[index];
    Rule::element(s, gradient[index], w, state);
    weight[index] = w;
    if constexpr (kStates > 0) first[index] = state[0];
    if constexpr (kStates > 1) second[index] = state[1];
  }
}

template <typename Rule>
const typename Rule::template Step<float>& step_in(const RuleStep& step) {
  return *reinterpret_cast<const typename Rule::template Step<float>*>(step.bytes.data());
}

template <typename Rule>
void update_plain(const RuleStep& step, const RuleSpan<float>& span) {
  update_span<Rule, float>(step_in<Rule>(step), span);
}

#if defined(__x86_64__) && !defined(__CUDACC__)
template <typename Rule>
[[gnu::target("avx2,fma")]] void update_avx2(const RuleStep& step, const RuleSpan<float>& span) {
  update_span<Rule, float>(step_in<Rule>(step), span);
}

template <typename Rule>
[[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,fma")]] void update_avx512(const RuleStep& step, const RuleSpan<float>& span) {
  update_span<Rule, float>(step_in<Rule>(step), span);
}
#else
template <typename Rule>
constexpr auto update_avx2 = update_plain<Rule>;
template <typename Rule>
constexpr auto update_avx512 = update_plain<Rule>;
#endif

template <typename Rule>
RuleStep prepare(const RuleInputs& inputs) {
  const auto step = Rule::template step<float>(inputs);
  static_assert(sizeof step <= sizeof(RuleStep) && std::is_trivially_copyable_v<decltype(step)>);
  RuleStep bytes{};
  std::memcpy(bytes.bytes.data(), &step, sizeof step);
  return bytes;
}

template <typename Rule>
void update_reference(const RuleInputs& inputs, const RuleSpan<double>& span) {
  update_span<Rule, double>(Rule::template step<double>(inputs), span);
}

}  // namespace detail

template <typename Rule>
constexpr UpdateRule row_of() {
  static_assert(Rule::kNumbers.size() <= kMostRuleNumbers && Rule::kStates.size() <= kMostRuleStates);
  return {.name = Rule::kName,
          .about = Rule::kAbout,
          .numbers = Rule::kNumbers,
          .states = Rule::kStates,
          .flops = Rule::kFlops,
          .usual_weight_decay = Rule::kWeightDecay,
          .deepspeed = Rule::kDeepSpeed,
          .peer_lr = Rule::kPeerLr,
          .prepare = detail::prepare<Rule>,
          .update = {detail::update_plain<Rule>, detail::update_avx2<Rule>, detail::update_avx512<Rule>},
          .reference = detail::update_reference<Rule>};
}

}  // namespace plimsoll::ops
