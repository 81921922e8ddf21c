// Every fast kernel on every case it takes, against the reference on the same inputs: max|difference| is measured
// against the largest magnitude of the result, with a bound by the coarsest element type that takes part.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/table.h"
#include "ops/cases.h"
#include "ops/compare.h"
#include "ops/run_case.h"

namespace plimsoll::op_cases {
namespace {

namespace cpu = kernels::cpu;
namespace reference = kernels::cpu::reference;

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = test_cases();
  return cases;
}

bool is_reference(const cpu::Kernel& kernel) { return kernel.name.ends_with(".reference"); }

void check_kernel(const cpu::Kernel& kernel, const Case& test, const std::vector<Bytes>& inputs, const reference::Results& expected) {
  SCOPED_TRACE(std::string(kernel.name));
  const std::vector<Bytes> found = run_case(kernel, test, inputs, {.threads = 1});
  expect_near(found, expected, test);
  if (is_reference(kernel)) return;  // one thread, no scratch, reads all before it writes
  EXPECT_EQ(run_case(kernel, test, inputs, {.threads = 1}), found) << "a second run gives other bits";
  if (can_share(test.op)) {
    EXPECT_EQ(run_case(kernel, test, inputs, {.threads = 1, .share = true}), found) << "other bits when an output lies on its input";
  }
  const std::vector<Bytes> by_two = run_case(kernel, test, inputs, {.threads = 2});
  EXPECT_EQ(by_two, found) << "two threads give other bits than one";
  EXPECT_EQ(run_case(kernel, test, inputs, {.threads = 2}), by_two) << "a second run on two threads gives other bits";
}

bool is_large(const Case& test) { return ops::bytes_of(test.input_types(), test.output_types()) > 60'000.0; }

// The kernels of an operator that take the case, whatever the number of threads.
std::vector<const cpu::Kernel*> kernels_for(const Case& test) {
  const std::vector<TensorType> inputs = test.input_types();
  const std::vector<TensorType> outputs = test.output_types();
  std::vector<const cpu::Kernel*> taking;
  for (const cpu::Kernel& kernel : cpu::kernels()) {
    if (kernel.op != ops::name_of(test.op)) continue;
    if (kernel.refusal == nullptr || !kernel.refusal({test.op, inputs, outputs, 1})) taking.push_back(&kernel);
  }
  return taking;
}

class Forward : public testing::TestWithParam<std::string> {};

TEST_P(Forward, KernelsAgreeWithTheReference) {
  int checked = 0;
  for (const Case& test : all_cases()) {
    if (ops::name_of(test.op) != GetParam()) continue;
    SCOPED_TRACE(test.name());
    const std::vector<reference::RefValue> values = draw_inputs(test);
    const std::vector<TensorType> types = test.input_types();
    std::vector<Bytes> inputs;
    for (std::size_t i = 0; i < values.size(); ++i) inputs.push_back(encode(values[i], types[i]));
    const reference::Results expected = reference::evaluate(test.op, values);
    for (const cpu::Kernel* kernel : kernels_for(test)) {
      if (is_reference(*kernel) && is_large(test)) continue;  // it would only compute the same again
      check_kernel(*kernel, test, inputs, expected);
      ++checked;
    }
    if (HasFailure()) return;  // one case is enough to start with
  }
  EXPECT_GT(checked, 0) << "no case of " << GetParam();
}

// No processor has units for 8-bit floats: what a GPU does with them is followed by the reference.
bool is_for_gpus(const Case& test) {
  return std::holds_alternative<ops::Quantize>(test.op) || std::holds_alternative<ops::NoteAmax>(test.op) ||
         std::holds_alternative<ops::ScaledLinear>(test.op);
}

// Falling back to the reference is for element types and shapes nobody trains with: all other cases here must have better.
TEST_P(Forward, EveryCaseHasAFastKernelAndAReference) {
  for (const Case& test : all_cases()) {
    if (ops::name_of(test.op) != GetParam()) continue;
    const std::vector<const cpu::Kernel*> taking = kernels_for(test);
    ASSERT_FALSE(taking.empty()) << test.name();
    ASSERT_TRUE(is_reference(*taking.back())) << test.name() << ": the last kernel of the operator must be the reference";
    ASSERT_EQ(is_reference(*taking.front()), is_for_gpus(test)) << test.name() << ": only the reference takes it";
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, Forward, testing::ValuesIn(computed_operators()), [](const auto& test) { return test.param; });

TEST(Cases, EveryOperatorIsTriedInF32AndBf16) {
  std::map<std::string, std::map<DType, int>> seen;
  for (const Case& test : all_cases()) {
    std::map<DType, int>& types = seen[std::string(ops::name_of(test.op))];
    for (const TensorType& type : test.input_types()) ++types[type.dtype];
  }
  const std::vector<std::string> without_tensors{"begin_step", "prepare_update", "finish_step", "merge_scalars", "fresh_scalars",
                                                 "shift_ids",  "check_rows",     "decode",      "loss_weights",  "merge_sums"};
  const std::vector<std::string> always_f32{"sum_loss", "cross_entropy_merge", "note_amax", "orthogonalize", "keep_error", "undo_skipped"};
  for (const std::string& name : computed_operators()) {
    ASSERT_TRUE(seen.contains(name)) << "no case of " << name;
    if (std::find(without_tensors.begin(), without_tensors.end(), name) != without_tensors.end()) continue;
    EXPECT_GT(seen[name][DType::f32], 0) << name;
    // Losses, largest values, steps and what codecs remember are always f32.
    if (std::find(always_f32.begin(), always_f32.end(), name) != always_f32.end()) continue;
    EXPECT_GT(seen[name][DType::bf16], 0) << name;
  }
}

TEST(Cases, AreDifferent) {
  std::map<std::string, int> names;
  for (const Case& test : all_cases()) {
    if (!test.inputs.empty() && std::holds_alternative<ops::StepScalars>(test.inputs[0].source))
      continue;  // these differ in the scalars' values
    EXPECT_EQ(names[test.name()]++, 0) << test.name();
  }
}

}  // namespace
}  // namespace plimsoll::op_cases
