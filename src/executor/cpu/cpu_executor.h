// Runs a plan on the processor: kernels are looked up and prepared once, addresses are resolved once, and a step is a
// loop over resolved calls.
#pragma once

#include <memory>

#include "executor/core/executor.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// `plan` must outlive the executor.
std::unique_ptr<Executor> make_cpu_executor(const plan::Plan& plan, std::int32_t rank);

}  // namespace plimsoll::executor
