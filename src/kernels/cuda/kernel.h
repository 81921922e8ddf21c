// A CUDA kernel: one way to compute one operator on device memory. It sees operators and memory, never graphs or plans.
//
// Choice is an ordered table (table.cpp), as on the processor: for each operator the fastest first, the plain one last;
// the first that does not refuse is taken and its name is written into the plan. launch() puts work on a stream and
// returns: it allocates nothing, waits for nothing and copies nothing to or from the host, so that a step can be captured
// as a graph. What changes from step to step is read on the device, from the step scalars. What can be settled once (a
// matrix product's algorithm) is settled by prepare.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "ops/kernel_choice.h"

namespace plimsoll::kernels::cuda {

struct Tensor {
  void* data = nullptr;  // on the device
  base::TensorType type;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct Call {
  const ops::Op& op;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  std::byte* workspace = nullptr;  // on the device, 64-byte aligned, as many bytes as the kernel's workspace() asked for
  const void* prepared = nullptr;  // what prepare() returned for the same query
  std::int64_t shard_place = 0;    // of this rank among those that share out tensors
};

using Prepared = std::shared_ptr<const void>;

struct Kernel {
  std::string_view op;    // ops::name_of
  std::string_view name;  // unique, as printed in plans: "linear.cublaslt"
  // (optional) Why this kernel does not take the query; nullopt = it does. Null: takes everything. May be asked where
  // there is no GPU: plans are made there too.
  std::optional<std::string> (*refusal)(const ops::KernelQuery& query) = nullptr;
  // (optional) Scratch bytes. Null: none.
  std::int64_t (*workspace)(const ops::KernelQuery& query) = nullptr;
  // (optional) Settles once what does not depend on the data; may use the device and wait for it.
  Prepared (*prepare)(const ops::KernelQuery& query) = nullptr;
  void (*launch)(const Call& call, cudaStream_t stream) = nullptr;
  // (optional) Several calls as a few launches, with the result of launching them one by one. None of them reads what another
  // writes, but for step scalars that all add to: their first operand, which is the same for all.
  void (*launch_many)(std::span<const Call> calls, cudaStream_t stream) = nullptr;
};

}  // namespace plimsoll::kernels::cuda
