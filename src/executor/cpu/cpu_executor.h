// Runs a plan on the processor: kernels are looked up and prepared once, addresses are resolved once, and a step is a
// loop over resolved calls, one loop and one thread for each stream.
#pragma once

#include <memory>

#include "executor/core/backend.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// See Backend::make_executor.
std::unique_ptr<Executor> make_cpu_executor(const plan::Plan& plan, const ExecutorOptions& options);

// See Backend::share.
std::unique_ptr<SharedDevice> share_cpu(std::span<const plan::Plan* const> plans, std::int32_t rank);

}  // namespace plimsoll::executor
