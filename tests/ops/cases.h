// The operator cases: one definition of (operator, input types, where values come from) serves the forward, gradient and
// speed checks, so a kernel cannot be fast on something nobody has checked. test_cases() has small, odd and random
// shapes; speed_cases() the sizes of GPT-2 124M at 4 x 256 tokens.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/shape.h"
#include "kernels/cpu/reference/tensor.h"
#include "ops/definition.h"
#include "ops/step_scalars.h"

namespace plimsoll::op_cases {

using base::DType;
using base::Shape;
using base::TensorType;

// ---- where the values of an input come from

struct Reals {
  double deviation = 1.0;
  bool positive = false;  // absolute values
};

// Uniform in [low, high).
struct Integers {
  std::int64_t low = 0;
  std::int64_t high = 1;
};

// Segments of a packed batch (B, T): runs of 0, 1, 2, .. and -1 for what pads the end of a sample.
struct Segments {};

// (context, D): cosines then sines, as rope wants.
struct Rotations {};

// What another operator makes of other inputs of the case: saved statistics, outputs.
struct Made {
  ops::Op op;
  std::vector<std::size_t> operands;  // indices of inputs that are not Made themselves
  std::size_t output = 0;
};

// Records of a float tensor.
struct Encoded {
  ops::Encode op;
  Shape shape;
};

using Source = std::variant<Reals, Integers, Segments, Rotations, ops::StepScalars, ops::ParameterSums, Made, Encoded>;

struct Input {
  TensorType type;
  Source source = Reals{};
};

struct Case {
  ops::Op op;
  std::vector<Input> inputs;
  std::vector<std::size_t> gradient_inputs = {};   // of a differentiable operator: which inputs have a gradient,
  std::vector<std::size_t> gradient_outputs = {};  // and at which outputs gradients arrive

  std::vector<TensorType> input_types() const;
  std::vector<TensorType> output_types() const;  // ops::Definition::infer
  std::string name() const;                      // "linear(bias=true) f32[3, 5], f32[7, 5], f32[7]"
};

std::vector<Case> test_cases();

// The names of the operators that a kernel computes; the others move data or only look at it.
std::vector<std::string> computed_operators();
std::vector<Case> speed_cases();

// The case of the accumulating form, with present values behind the inputs; for operators that have one.
Case accumulating_case(const Case& plain, const ops::Op& accumulating);

// `count` values of an input that is not Made, Encoded or StepScalars, not rounded to its element type. The stream depends on
// the salt alone.
std::vector<double> draw_values(const Input& input, std::int64_t count, std::uint64_t salt);

// What an input that is Made is, given the others; not rounded.
kernels::cpu::reference::RefValue made_input(const Case& test, std::size_t index,
                                             const std::vector<kernels::cpu::reference::RefValue>& values);

// All inputs of a case as numbers its element types can hold; Made ones by the reference.
std::vector<kernels::cpu::reference::RefValue> draw_inputs(const Case& test);

}  // namespace plimsoll::op_cases
