// Every operator that says how an operand is made again: its kernel runs, then that of the inverse, which gives the operand.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "kernels/cpu/table.h"
#include "ops/cases.h"
#include "ops/run_case.h"

namespace plimsoll::op_cases {
namespace {

namespace cpu = kernels::cpu;
namespace reference = kernels::cpu::reference;

// The fastest that takes the case.
const cpu::Kernel& kernel_for(const Case& test) {
  const std::vector<TensorType> inputs = test.input_types();
  const std::vector<TensorType> outputs = test.output_types();
  const auto found = std::find_if(cpu::kernels().begin(), cpu::kernels().end(), [&](const cpu::Kernel& kernel) {
    return kernel.op == ops::name_of(test.op) && (kernel.refusal == nullptr || !kernel.refusal({test.op, inputs, outputs, 1}));
  });
  PLIMSOLL_CHECK(found != cpu::kernels().end(), "no kernel takes {}", test.name());
  return *found;
}

double largest(const Bytes& bytes, const TensorType& type) {
  const reference::RefValue decoded = decode(bytes, type);
  double most = 0.0;
  for (const double value : reference::tensor(decoded).values) most = std::max(most, std::abs(value));
  return most;
}

// Half a unit in the last place.
double rounding(DType dtype) { return dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8; }

// The operand, and what its inverse made of the rest.
void expect_made_again(const Case& test, std::size_t operand, const ops::Inverse& inverse, const std::vector<Bytes>& inputs) {
  const std::vector<TensorType> input_types = test.input_types();
  const std::vector<TensorType> output_types = test.output_types();
  const std::vector<Bytes> outputs = run_case(kernel_for(test), test, inputs, {});
  Case back{inverse.op, {}};
  std::vector<Bytes> operands;
  double scale = 0.0;
  for (const ops::Rebuild::Source& source : inverse.inputs) {
    const auto index = static_cast<std::size_t>(source.index);
    ASSERT_TRUE(source.output || index != operand) << "made of itself";
    back.inputs.push_back({source.output ? output_types.at(index) : input_types.at(index)});
    operands.push_back(source.output ? outputs.at(index) : inputs.at(index));
    if (back.inputs.back().type == input_types[operand]) scale = std::max(scale, largest(operands.back(), back.inputs.back().type));
  }
  ASSERT_EQ(back.output_types().at(0), input_types[operand]);
  const Bytes made = run_case(kernel_for(back), back, operands, {})[0];
  if (inverse.exact) {
    EXPECT_EQ(made, inputs[operand]);
    return;
  }
  // Both results are rounded, relative to the largest number that takes part.
  const reference::RefTensor wanted = reference::tensor(decode(inputs[operand], input_types[operand]));
  const reference::RefTensor found = reference::tensor(decode(made, input_types[operand]));
  scale = std::max(scale, largest(inputs[operand], input_types[operand]));
  for (std::int64_t element = 0; element < wanted.elements(); ++element)
    ASSERT_NEAR(found[element], wanted[element], 4.0 * rounding(input_types[operand].dtype) * scale) << "element " << element;
}

TEST(Inverse, MakesOperandsAgain) {
  std::map<std::string_view, std::set<std::size_t>> made;  // operators, and which operands
  for (const Case& test : test_cases()) {
    const std::vector<TensorType> types = test.input_types();
    for (std::size_t operand = 0; operand < types.size(); ++operand) {
      const std::optional<ops::Inverse> inverse = ops::inverse_of(test.op, operand, types);
      if (!inverse) continue;
      SCOPED_TRACE(fmt::format("operand {} of {}", operand, test.name()));
      std::vector<Bytes> inputs;
      const std::vector<reference::RefValue> values = draw_inputs(test);
      for (std::size_t input = 0; input < values.size(); ++input) inputs.push_back(encode(values[input], types[input]));
      expect_made_again(test, operand, *inverse, inputs);
      made[ops::name_of(test.op)].insert(operand);
      if (HasFailure()) return;
    }
  }
  const std::map<std::string_view, std::set<std::size_t>> expected{{"add", {0, 1}},      {"cast", {0}},       {"norm", {0, 1}},
                                                                   {"put_columns", {0}}, {"put_part", {0}},   {"residual", {0, 1}},
                                                                   {"rope", {0}},        {"subtract", {0, 1}}};
  EXPECT_EQ(made, expected);
}

}  // namespace
}  // namespace plimsoll::op_cases
