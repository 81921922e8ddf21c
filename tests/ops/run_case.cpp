#include "ops/run_case.h"

#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/cpu/reference/convert.h"

namespace plimsoll::op_cases {

namespace {

namespace cpu = kernels::cpu;
namespace reference = kernels::cpu::reference;

constexpr std::byte kGuardByte{0xA5};
constexpr std::byte kPoison{0xFF};  // NaN in every float type, -1 in every integer type
constexpr std::size_t kAlignment = 64;

}  // namespace

GuardedBuffer::GuardedBuffer(std::int64_t bytes)
    : bytes_(bytes), memory_(new std::byte[static_cast<std::size_t>(bytes + 2 * kGuard) + kAlignment]) {
  void* start = memory_.get();
  std::size_t space = static_cast<std::size_t>(bytes + 2 * kGuard) + kAlignment;
  start_ = static_cast<std::byte*>(std::align(kAlignment, static_cast<std::size_t>(bytes + 2 * kGuard), start, space));
  std::fill(start_, start_ + bytes + 2 * kGuard, kGuardByte);
  std::fill(data(), data() + bytes, kPoison);
}

bool GuardedBuffer::intact() const {
  const auto untouched = [](const std::byte* guard) {
    return std::all_of(guard, guard + kGuard, [](std::byte value) { return value == kGuardByte; });
  };
  return untouched(start_) && untouched(start_ + kGuard + bytes_);
}

Bytes encode(const reference::RefValue& value, const base::TensorType& type) {
  Bytes bytes(static_cast<std::size_t>(type.bytes()));
  reference::store_value(value, bytes.data(), type);
  return bytes;
}

reference::RefValue decode(const Bytes& bytes, const base::TensorType& type) { return reference::load_value(bytes.data(), type); }

bool can_share(const ops::Op& op) {
  const std::vector<ops::Alias> aliases = ops::aliases_of(op);
  return std::any_of(aliases.begin(), aliases.end(), [](const ops::Alias& alias) { return !alias.required; });
}

std::vector<Bytes> run_case(const cpu::Kernel& kernel, const Case& test, const std::vector<Bytes>& inputs, const RunOptions& options) {
  const std::vector<TensorType> input_types = test.input_types();
  const std::vector<TensorType> output_types = test.output_types();
  const ops::KernelQuery query{test.op, input_types, output_types, options.threads};

  std::vector<GuardedBuffer> buffers;
  std::vector<cpu::Tensor> input_tensors;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    buffers.emplace_back(input_types[i].bytes());
    std::copy(inputs[i].begin(), inputs[i].end(), buffers.back().data());
    input_tensors.push_back({buffers.back().data(), input_types[i]});
  }
  std::vector<bool> overwritten(inputs.size(), false);
  std::vector<cpu::Tensor> output_tensors(output_types.size());
  for (const ops::Alias& alias : ops::aliases_of(test.op)) {
    if (!alias.required && !options.share) continue;
    const auto input = static_cast<std::size_t>(alias.input);
    const auto output = static_cast<std::size_t>(alias.output);
    EXPECT_EQ(input_types[input].bytes(), output_types[output].bytes()) << "operands that share memory differ in size";
    output_tensors[output] = {input_tensors[input].data, output_types[output]};
    overwritten[input] = true;
  }
  for (std::size_t o = 0; o < output_types.size(); ++o) {
    if (output_tensors[o].data != nullptr) continue;
    buffers.emplace_back(output_types[o].bytes());
    output_tensors[o] = {buffers.back().data(), output_types[o]};
  }
  buffers.emplace_back(kernel.workspace != nullptr ? kernel.workspace(query) : 0);

  const cpu::Prepared prepared = kernel.prepare != nullptr ? kernel.prepare(query) : nullptr;
  kernel.run({test.op, input_tensors, output_tensors, buffers.back().data(), options.threads, prepared.get()});

  for (std::size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(buffers[i].intact()) << "written outside operand or scratch " << i;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(overwritten[i] || std::equal(inputs[i].begin(), inputs[i].end(), buffers[i].data())) << "input " << i << " was changed";
  }
  std::vector<Bytes> outputs;
  for (const cpu::Tensor& tensor : output_tensors) {
    outputs.emplace_back(tensor.as<std::byte>(), tensor.as<std::byte>() + tensor.type.bytes());
  }
  return outputs;
}

}  // namespace plimsoll::op_cases
