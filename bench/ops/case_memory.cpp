#include "ops/case_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/reference/convert.h"
#include "kernels/cpu/table.h"

namespace plimsoll::op_cases {

namespace {

namespace cpu = kernels::cpu;
namespace reference = kernels::cpu::reference;

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kRandomRun = 65'537;  // prime, so that rows do not repeat each other

std::int64_t scratch_bytes(const cpu::Kernel& kernel, const ops::KernelQuery& query) {
  return kernel.workspace != nullptr ? kernel.workspace(query) : 0;
}

}  // namespace

AlignedBytes::AlignedBytes(std::int64_t bytes) {
  const std::int64_t padded = (bytes + kAlignment) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(padded))));
  PLIMSOLL_CHECK(data_ != nullptr, "no {} bytes of memory", padded);
  std::memset(data_.get(), 0, static_cast<std::size_t>(padded));  // pages are there before anything is timed
}

void AlignedBytes::Free::operator()(std::byte* memory) const { std::free(memory); }

ReadyKernel::ReadyKernel(const cpu::Kernel& kernel, const ops::KernelQuery& query)
    : kernel_(kernel), workspace_(scratch_bytes(kernel, query)), prepared_(kernel.prepare != nullptr ? kernel.prepare(query) : nullptr) {}

void ReadyKernel::run(const ops::KernelQuery& query, std::span<const cpu::Tensor> inputs, std::span<const cpu::Tensor> outputs) const {
  kernel_.run({query.op, inputs, outputs, workspace_.data(), query.threads, prepared_.get()});
}

CaseMemory::CaseMemory(const Case& test, int threads)
    : test_(test), threads_(threads), input_types_(test.input_types()), output_types_(test.output_types()) {
  for (const TensorType& type : input_types_) inputs_.push_back(allocate(type));
  for (std::size_t index = 0; index < inputs_.size(); ++index) fill(index);
  for (std::size_t index = 0; index < inputs_.size(); ++index) make(index);
  outputs_.resize(output_types_.size());
  for (const ops::Alias& alias : ops::aliases_of(test.op)) {
    const auto output = static_cast<std::size_t>(alias.output);
    if (alias.required) outputs_[output] = {inputs_[static_cast<std::size_t>(alias.input)].data, output_types_[output]};
  }
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    if (outputs_[output].data == nullptr) outputs_[output] = allocate(output_types_[output]);
  }
}

cpu::Tensor CaseMemory::allocate(const TensorType& type) {
  memory_.emplace_back(type.bytes());
  return {memory_.back().data(), type};
}

void CaseMemory::fill(std::size_t index) {
  const Input& input = test_.inputs[index];
  auto* to = inputs_[index].as<std::byte>();
  if (std::holds_alternative<Made>(input.source)) return;
  if (const auto* scalars = std::get_if<ops::StepScalars>(&input.source)) {
    std::memcpy(to, scalars, sizeof *scalars);
    return;
  }
  const std::vector<double> run = draw_values(input, std::min(kRandomRun, input.type.shape.elements()), index);
  const auto count = static_cast<std::int64_t>(run.size());
  reference::store({Shape{count}, run}, to, {input.type.dtype, Shape{count}});
  // Doubles what is there until all is filled.
  const std::int64_t total = input.type.bytes();
  for (std::int64_t filled = count * base::size_of(input.type.dtype); filled < total; filled *= 2) {
    std::memcpy(to + filled, to, static_cast<std::size_t>(std::min(filled, total - filled)));
  }
}

void CaseMemory::make(std::size_t index) {
  const auto* made = std::get_if<Made>(&test_.inputs[index].source);
  if (made == nullptr) return;
  std::vector<cpu::Tensor> operands;
  std::vector<TensorType> types;
  for (const std::size_t operand : made->operands) {
    operands.push_back(inputs_[operand]);
    types.push_back(input_types_[operand]);
  }
  const std::vector<TensorType> result_types = ops::definition_of(made->op).infer(made->op, types);
  std::vector<cpu::Tensor> results;
  for (const TensorType& type : result_types) results.push_back(allocate(type));
  results[made->output].data = inputs_[index].data;
  const ops::KernelQuery query{made->op, types, result_types, threads_};
  ReadyKernel(cpu::kernel_named(cpu::choose(query).name), query).run(query, operands, results);
}

}  // namespace plimsoll::op_cases
