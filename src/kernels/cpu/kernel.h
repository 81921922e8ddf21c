// A CPU kernel: one way to compute one operator on raw views. Kernels see operators and memory, never graphs or plans.
//
// Choice is an ordered table (table.cpp): for each operator the fastest first, the reference last; the first that does
// not refuse is taken, and its name is written into the plan. A kernel allocates nothing when it runs: scratch comes
// with the call, and what can be settled once (a GEMM primitive) is settled by prepare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/shape.h"
#include "ops/kernel_choice.h"

namespace plimsoll::kernels::cpu {

struct Tensor {
  void* data = nullptr;
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
  std::byte* workspace = nullptr;  // 64-byte aligned, as many bytes as the kernel's workspace() asked for
  int threads = 1;
  const void* prepared = nullptr;  // what prepare() returned for the same query
  std::int64_t shard_place = 0;    // of this rank among those that share out tensors
};

using Prepared = std::shared_ptr<const void>;

struct Kernel {
  std::string_view op;    // ops::name_of
  std::string_view name;  // unique, as printed in plans: "linear.onednn"
  // (optional) Why this kernel does not take the query; nullopt = it does. Null: takes everything.
  std::optional<std::string> (*refusal)(const ops::KernelQuery& query) = nullptr;
  // (optional) Scratch bytes. Null: none.
  std::int64_t (*workspace)(const ops::KernelQuery& query) = nullptr;
  // (optional) Settles once what does not depend on the data.
  Prepared (*prepare)(const ops::KernelQuery& query) = nullptr;
  void (*run)(const Call& call) = nullptr;
};

}  // namespace plimsoll::kernels::cpu
