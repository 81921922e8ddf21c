// Every adjoint against differences of the reference forward, in double. The adjoint's own operators are evaluated by
// the reference as they are emitted, so a wrong adjoint rule and a wrong gradient operator both show.
//
// With F = sum of <u_k, output_k> for random u_k (a loss instead carries its own scale: loss scale / tokens), dF/dx from
// the adjoint must equal (8 (F(x+h) - F(x-h)) - (F(x+2h) - F(x-2h))) / 12h along unit vectors and random directions.
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "kernels/cpu/reference/compute.h"
#include "ops/cases.h"

namespace plimsoll::op_cases {
namespace {

namespace reference = kernels::cpu::reference;
using ops::ValueId;
using reference::RefTensor;
using reference::RefValue;

constexpr double kSmoothStep = 1e-4;
constexpr double kKinkedStep = 1e-6;  // a sum with a kink is straight beside it: a tiny step is exact and rarely meets one
constexpr double kTolerance = 1e-7;
constexpr std::int64_t kUnitVectors = 24;
constexpr int kDirections = 4;
constexpr std::int64_t kLargestCase = 10'000;  // elements of inputs and outputs

// Values by id, computed as they are emitted.
class Recorder : public ops::AdjointBuilder {
 public:
  ValueId add(RefValue value, const TensorType& type, bool wanted = true) { return entries_.add({std::move(value), type, wanted}); }
  const RefTensor& value(ValueId id) const { return reference::tensor(entries_[id].value); }
  void set_wanted(ValueId id, bool wanted) { entries_[id].wanted = wanted; }

  const TensorType& type(ValueId id) const override { return entries_[id].type; }
  bool wants_grad(ValueId id) const override { return entries_[id].wanted; }
  DType grad_dtype(ValueId) const override { return DType::f32; }
  ValueId scalars() const override { return scalars_; }
  std::vector<ValueId> emit(const ops::Op& op, std::vector<ValueId> inputs) override {
    std::vector<RefValue> operands;
    std::vector<TensorType> types;
    for (const ValueId input : inputs) {
      operands.push_back(entries_[input].value);
      types.push_back(entries_[input].type);
    }
    const std::vector<TensorType> result_types = ops::definition_of(op).infer(op, types);
    reference::Results results = reference::evaluate(op, operands);
    std::vector<ValueId> ids;
    for (std::size_t i = 0; i < results.size(); ++i) ids.push_back(add(std::move(results[i]), result_types[i]));
    emitted_.push_back(ops::to_string(op));
    return ids;
  }

  void set_scalars(ValueId id) { scalars_ = id; }
  const std::vector<std::string>& emitted() const { return emitted_; }

 private:
  struct Entry {
    RefValue value;
    TensorType type;
    bool wanted = true;
  };
  base::IdVector<ValueId, Entry> entries_;
  ValueId scalars_;
  std::vector<std::string> emitted_;
};

double random_normal(std::uint64_t stream, std::int64_t n) {
  const base::RandomBlock words = base::philox({static_cast<std::uint32_t>(n), 0, 0, 0}, base::random_key(stream, 99));
  return static_cast<double>(base::normal_from_bits(words[0], words[1])[0]);
}

bool is_loss(const ops::Op& op) { return ops::definition_of(op).counts_itself; }

ops::StepScalars loss_scalars() {
  ops::StepScalars scalars;
  scalars.loss_scale = 4.0f;
  scalars.inverse_tokens = 0.125f;
  return scalars;
}

// Where gradients arrive; nowhere: at a loss that counts itself.
struct Arrival {
  std::vector<std::size_t> outputs;
  bool counts_itself = false;
};

// The functional F: weights u per output, empty where no gradient arrives.
struct Functional {
  std::vector<RefTensor> weights;
  bool counts_itself;

  Functional(const reference::Results& outputs, const Arrival& arrival) : weights(outputs.size()), counts_itself(arrival.counts_itself) {
    for (const std::size_t output : arrival.outputs) {
      RefTensor u(reference::tensor(outputs[output]).shape);
      for (std::int64_t e = 0; e < u.elements(); ++e) u[e] = counts_itself ? 4.0 * 0.125 : random_normal(1000 + output, e);
      weights[output] = std::move(u);
    }
  }

  double operator()(const reference::Results& outputs) const {
    double sum = 0.0;
    for (std::size_t output = 0; output < outputs.size(); ++output) {
      for (std::int64_t e = 0; e < weights[output].elements(); ++e) sum += weights[output][e] * reference::tensor(outputs[output])[e];
    }
    return sum;
  }
};

// The gradients the adjoint gives for each input; empty tensors where it gives none.
std::vector<RefTensor> gradients_by_adjoint(const Case& test, const std::vector<RefValue>& inputs, const Functional& functional,
                                            const std::vector<bool>& wanted) {
  Recorder recorder;
  std::vector<ValueId> input_ids;
  for (std::size_t i = 0; i < inputs.size(); ++i) input_ids.push_back(recorder.add(inputs[i], test.inputs[i].type, wanted[i]));
  recorder.set_scalars(recorder.add(loss_scalars(), ops::step_scalars_type()));
  const std::vector<ValueId> output_ids = recorder.emit(test.op, input_ids);
  std::vector<ValueId> output_grads(output_ids.size());
  for (std::size_t output = 0; output < output_ids.size(); ++output) {
    if (functional.counts_itself || functional.weights[output].elements() == 0) continue;
    output_grads[output] = recorder.add(functional.weights[output], recorder.type(output_ids[output]));
  }
  const std::vector<ValueId> grads = ops::definition_of(test.op).adjoint({test.op, input_ids, output_ids, output_grads}, recorder);
  EXPECT_EQ(grads.size(), inputs.size());
  std::vector<RefTensor> values;
  for (const ValueId grad : grads) values.push_back(grad.valid() ? recorder.value(grad) : RefTensor());
  return values;
}

double step_for(const ops::Op& op) { return ops::to_string(op).find("relu") != std::string::npos ? kKinkedStep : kSmoothStep; }

// dF along `direction` in input `input`.
double difference(const Case& test, std::vector<RefValue> inputs, std::size_t input, const std::vector<double>& direction,
                  const Functional& functional) {
  const RefTensor at = reference::tensor(inputs[input]);
  const auto value = [&](double by) {
    RefTensor moved = at;
    for (std::int64_t e = 0; e < moved.elements(); ++e) moved[e] += by * direction[static_cast<std::size_t>(e)];
    inputs[input] = std::move(moved);
    // What was saved for a gradient operator moves along.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (std::holds_alternative<Made>(test.inputs[i].source)) inputs[i] = made_input(test, i, inputs);
    }
    return functional(reference::evaluate(test.op, inputs));
  };
  const double step = step_for(test.op);
  return (8.0 * (value(step) - value(-step)) - (value(2.0 * step) - value(-2.0 * step))) / (12.0 * step);
}

void check_direction(const Case& test, const std::vector<RefValue>& inputs, std::size_t input, const std::vector<double>& direction,
                     const Functional& functional, const RefTensor& gradient) {
  double by_adjoint = 0.0;
  double magnitude = 0.0;
  for (std::int64_t e = 0; e < gradient.elements(); ++e) {
    by_adjoint += gradient[e] * direction[static_cast<std::size_t>(e)];
    magnitude = std::max(magnitude, std::abs(gradient[e]));
  }
  const double by_difference = difference(test, inputs, input, direction, functional);
  EXPECT_NEAR(by_adjoint, by_difference, kTolerance * std::max(1.0, magnitude)) << "input " << input;
}

void check_input(const Case& test, const std::vector<RefValue>& inputs, std::size_t input, const Functional& functional,
                 const RefTensor& gradient) {
  const std::int64_t count = reference::tensor(inputs[input]).elements();
  ASSERT_EQ(gradient.elements(), count) << "input " << input << " has no gradient of its size";
  std::vector<double> direction(static_cast<std::size_t>(count), 0.0);
  const std::int64_t stride = std::max<std::int64_t>(1, count / kUnitVectors);
  for (std::int64_t e = 0; e < count; e += stride) {
    direction[static_cast<std::size_t>(e)] = 1.0;
    check_direction(test, inputs, input, direction, functional, gradient);
    direction[static_cast<std::size_t>(e)] = 0.0;
  }
  for (int n = 0; n < kDirections; ++n) {
    double norm = 0.0;
    for (std::int64_t e = 0; e < count; ++e) {
      direction[static_cast<std::size_t>(e)] = random_normal(static_cast<std::uint64_t>(n), e);
      norm += std::pow(direction[static_cast<std::size_t>(e)], 2);
    }
    for (double& part : direction) part /= std::sqrt(norm);
    check_direction(test, inputs, input, direction, functional, gradient);
  }
}

// Attention's log-sums take a gradient beside its output's, not alone.
bool needs_first(const ops::Op& op) {
  return std::holds_alternative<ops::Attention>(op) || std::holds_alternative<ops::MergeAttention>(op);
}

// Gradients may arrive at any of the outputs that take them: at all, and at each alone.
std::vector<Arrival> arrivals(const Case& test) {
  std::vector<Arrival> arrivals{{test.gradient_outputs, is_loss(test.op)}};
  if (std::holds_alternative<ops::CrossEntropy>(test.op)) arrivals.push_back({test.gradient_outputs});
  if (test.gradient_outputs.size() > 1) {
    for (const std::size_t output : test.gradient_outputs) {
      if (output == 0 || !needs_first(test.op)) arrivals.push_back({{output}});
    }
  }
  return arrivals;
}

void check_case(const Case& test) {
  std::vector<RefValue> inputs = draw_inputs(test);
  for (RefValue& input : inputs) {
    if (is_loss(test.op) && std::holds_alternative<ops::StepScalars>(input)) input = loss_scalars();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (std::holds_alternative<Made>(test.inputs[i].source)) inputs[i] = made_input(test, i, inputs);  // not rounded
  }
  const reference::Results outputs = reference::evaluate(test.op, inputs);
  for (const Arrival& arrival : arrivals(test)) {
    const Functional functional(outputs, arrival);
    const std::vector<RefTensor> gradients = gradients_by_adjoint(test, inputs, functional, std::vector<bool>(inputs.size(), true));
    for (std::size_t input = 0; input < inputs.size(); ++input) {
      const bool expected = std::find(test.gradient_inputs.begin(), test.gradient_inputs.end(), input) != test.gradient_inputs.end();
      if (!expected) {
        EXPECT_EQ(gradients[input].elements(), 0) << "input " << input << " has a gradient and should have none";
      } else {
        // None where it depends on nothing that a gradient arrived at, which differences then say too.
        const bool none = gradients[input].elements() == 0 && arrival.outputs.size() < test.gradient_outputs.size();
        const RefTensor zeros = none ? RefTensor(reference::tensor(inputs[input]).shape) : RefTensor();
        check_input(test, inputs, input, functional, none ? zeros : gradients[input]);
      }
    }
    // Freezing the others changes nothing for the one that is left.
    for (const std::size_t input : test.gradient_inputs) {
      std::vector<bool> only(inputs.size(), false);
      only[input] = true;
      EXPECT_EQ(gradients_by_adjoint(test, inputs, functional, only)[input].values, gradients[input].values) << "input " << input;
    }
  }
}

bool checkable(const Case& test) {
  if (ops::definition_of(test.op).adjoint == nullptr) return false;
  // The loss without gradients is for evaluation; the accumulating form is made after differentiation.
  if (const auto* head = std::get_if<ops::HeadLoss>(&test.op)) {
    if (!head->gradients || head->accumulate) return false;
  }
  if (const auto* attention = std::get_if<ops::AttentionGrad>(&test.op); attention != nullptr && attention->forward.separate) return false;
  std::int64_t elements = 0;
  for (const Input& input : test.inputs) {
    if (base::is_float(input.type.dtype) && input.type.dtype != DType::f32) return false;  // numbers are doubles anyway
    elements += input.type.shape.elements();
  }
  return elements <= kLargestCase;
}

class Gradient : public testing::TestWithParam<std::string> {};

TEST_P(Gradient, AdjointEqualsDifferences) {
  int checked = 0;
  for (const Case& test : test_cases()) {
    if (ops::name_of(test.op) != GetParam() || !checkable(test)) continue;
    SCOPED_TRACE(test.name());
    check_case(test);
    ++checked;
    if (HasFailure()) return;
  }
  EXPECT_GT(checked, 0) << "no case of " << GetParam() << " was differentiated";
}

template <std::size_t... Index>
std::vector<std::string> differentiable(std::index_sequence<Index...>) {
  std::vector<std::string> names;
  const auto add = [&](const ops::Op& op) {
    // What ranks exchange is trained by ranks: tests/ranks/all_to_all_test.cpp.
    const bool alone = !ops::is_view(op) && !ops::is_collective(op);
    if (ops::definition_of(op).adjoint != nullptr && alone) names.emplace_back(ops::name_of(op));
  };
  (add(std::variant_alternative_t<Index, ops::Op>{}), ...);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Operators, Gradient, testing::ValuesIn(differentiable(std::make_index_sequence<std::variant_size_v<ops::Op>>())),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace plimsoll::op_cases
