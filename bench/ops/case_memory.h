// A case's operands in memory, ready to be run again and again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cpu/kernel.h"
#include "ops/cases.h"

namespace plimsoll::op_cases {

// 64-byte aligned, as arenas are.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
};

class CaseMemory {
 public:
  // Large inputs repeat a short run of random values; inputs that another operator makes are made by its chosen kernel.
  CaseMemory(const Case& test, int threads);

  ops::KernelQuery query() const { return {test_.op, input_types_, output_types_, threads_}; }
  std::span<const kernels::cpu::Tensor> inputs() const { return inputs_; }
  std::span<const kernels::cpu::Tensor> outputs() const { return outputs_; }

 private:
  kernels::cpu::Tensor allocate(const TensorType& type);
  void fill(std::size_t index);
  void make(std::size_t index);

  const Case& test_;
  int threads_;
  std::vector<TensorType> input_types_;
  std::vector<TensorType> output_types_;
  std::vector<AlignedBytes> memory_;
  std::vector<kernels::cpu::Tensor> inputs_;
  std::vector<kernels::cpu::Tensor> outputs_;
};

// A kernel with its scratch and what it prepares, for one query.
class ReadyKernel {
 public:
  ReadyKernel(const kernels::cpu::Kernel& kernel, const ops::KernelQuery& query);
  void run(const ops::KernelQuery& query, std::span<const kernels::cpu::Tensor> inputs,
           std::span<const kernels::cpu::Tensor> outputs) const;

 private:
  const kernels::cpu::Kernel& kernel_;
  AlignedBytes workspace_;
  kernels::cpu::Prepared prepared_;
};

}  // namespace plimsoll::op_cases
