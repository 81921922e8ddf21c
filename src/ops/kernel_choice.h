// How lowering asks a backend for a kernel without knowing the backend.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ops/definition.h"

namespace plimsoll::ops {

struct KernelQuery {
  const Op& op;
  Types inputs;
  Types outputs;
  int threads = 1;
  bool deterministic = true;  // false: kernels may add in an order that differs from run to run
  bool bounded = false;       // of the rows, only the first so many hold anything, as a count says when it runs
  Tier tier = Tier::device;   // of the operands: what works in the host's memory is done by the processor
};

struct KernelChoice {
  std::string name;
  std::int64_t workspace = 0;  // bytes; the kernel may use no other memory

  bool operator==(const KernelChoice&) const = default;
};

// not_legal with every kernel's reason when none takes the query.
using ChooseKernel = std::function<KernelChoice(const KernelQuery&)>;

}  // namespace plimsoll::ops
