// Every CUDA kernel on every case it takes, against the f64 reference on the processor, on the same inputs and within the
// same bounds as the processor's kernels.
//
// Processes can share the cases: PLIMSOLL_TEST_SHARE=3/16 is the fourth of sixteen. PLIMSOLL_TEST_KERNELS=own leaves out the kernels of
// NVIDIA's libraries, which break under compute-sanitizer's racecheck; any other word leaves out those without it in their names.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cuda/device_case.h"
#include "kernels/cuda/table.h"
#include "ops/compare.h"

namespace plimsoll::op_cases {
namespace {

namespace cuda = kernels::cuda;
namespace reference = kernels::cpu::reference;

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = test_cases();
  return cases;
}

const DeviceMemory& device_memory() {
  static const DeviceMemory memory(std::int64_t{1} << 30);
  return memory;
}

struct Share {
  int index = 0;
  int of = 1;

  Share() {
    const char* given = std::getenv("PLIMSOLL_TEST_SHARE");
    if (given == nullptr) return;
    const std::string_view text = given;
    const char* end = text.data() + text.size();
    const char* slash = std::from_chars(text.data(), end, index).ptr;
    if (slash == end || std::from_chars(slash + 1, end, of).ptr != end || of < 1 || index < 0 || index >= of)
      throw std::invalid_argument("PLIMSOLL_TEST_SHARE is \"" + std::string(text) + "\", expected INDEX/COUNT");
  }
};

class WantedKernels {
 public:
  WantedKernels() {
    if (const char* given = std::getenv("PLIMSOLL_TEST_KERNELS")) word_ = given;
  }
  bool all() const { return word_.empty(); }
  bool has(const cuda::Kernel& kernel) const {
    const auto named = [&](std::string_view word) { return kernel.name.find(word) != std::string_view::npos; };
    return word_ == "own" ? !named("cublaslt") && !named("cudnn") : named(word_);
  }

 private:
  std::string_view word_;
};

std::vector<const cuda::Kernel*> kernels_for(const Case& test, bool deterministic) {
  const std::vector<TensorType> inputs = test.input_types();
  const std::vector<TensorType> outputs = test.output_types();
  std::vector<const cuda::Kernel*> taking;
  for (const cuda::Kernel& kernel : cuda::kernels()) {
    if (kernel.op != ops::name_of(test.op)) continue;
    if (kernel.refusal == nullptr || !kernel.refusal({test.op, inputs, outputs, 1, deterministic})) taking.push_back(&kernel);
  }
  return taking;
}

void check_kernel(const cuda::Kernel& kernel, const Case& test, const std::vector<Bytes>& inputs, const reference::Results& expected) {
  SCOPED_TRACE(std::string(kernel.name));
  const std::vector<Bytes> found = run_on_device(kernel, test, inputs, device_memory(), {});
  if (found.empty()) return;
  expect_near(found, expected, test);
  if (!kernel.name.ends_with("any-order")) {
    EXPECT_EQ(run_on_device(kernel, test, inputs, device_memory(), {}), found) << "a second run gives other bits";
  }
  if (can_share(test.op)) {
    EXPECT_EQ(run_on_device(kernel, test, inputs, device_memory(), {.share = true}), found)
        << "other bits when an output lies on its input";
  }
}

// Second derivatives run on the processor only yet.
bool is_for_processors(std::string_view name) { return name.ends_with("_grad_grad") || name == "repeat_rows" || name == "loss_weights"; }

// An update with a result more than it writes in place sends it from the host.
bool sends_from_host(const Case& test) { return ops::is_update(test.op) && test.output_types().size() + 2 > test.input_types().size(); }

std::vector<std::string> operators_here() {
  std::vector<std::string> names = computed_operators();
  std::erase_if(names, is_for_processors);
  return names;
}

class OnDevice : public testing::TestWithParam<std::string> {};

TEST_P(OnDevice, KernelsAgreeWithTheReference) {
  const Share share;
  const WantedKernels wanted;
  int checked = 0;
  int failed = 0;
  int number = 0;
  for (const Case& test : all_cases()) {
    if (ops::name_of(test.op) != GetParam() || number++ % share.of != share.index) continue;
    SCOPED_TRACE(test.name());
    const std::vector<reference::RefValue> values = draw_inputs(test);
    const std::vector<TensorType> types = test.input_types();
    std::vector<Bytes> inputs;
    for (std::size_t i = 0; i < values.size(); ++i) inputs.push_back(encode(values[i], types[i]));
    const reference::Results expected = reference::evaluate(test.op, values);
    for (const cuda::Kernel* kernel : kernels_for(test, false)) {
      if (!wanted.has(*kernel)) continue;
      check_kernel(*kernel, test, inputs, expected);
      ++checked;
    }
    if (HasFailure() && ++failed == 3) return;  // a few cases are enough to start with
  }
  EXPECT_TRUE(checked > 0 || share.of > 1 || !wanted.all()) << "no case of " << GetParam();
}

// Asks no device: plans are made on machines without one.
TEST_P(OnDevice, EveryCaseHasAKernel) {
  for (const Case& test : all_cases()) {
    if (ops::name_of(test.op) == GetParam() && !sends_from_host(test)) {
      EXPECT_FALSE(kernels_for(test, true).empty()) << test.name();
    }
  }
}

TEST(Table, EveryKernelIsFoundByItsName) {
  for (const cuda::Kernel& kernel : cuda::kernels()) EXPECT_EQ(&cuda::kernel_named(kernel.name), &kernel);
}

INSTANTIATE_TEST_SUITE_P(Operators, OnDevice, testing::ValuesIn(operators_here()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace plimsoll::op_cases
