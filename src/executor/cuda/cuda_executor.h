// Runs a plan on a GPU: one arena at the plan's offsets, a CUDA stream for each stream of the plan, an event for each token.
// Kernels are looked up and prepared once, addresses are resolved once; a step allocates nothing and waits for nothing. The
// second run of a program is captured as a CUDA graph, and every later one is a single launch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "executor/core/backend.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// See Backend::make_executor.
std::unique_ptr<Executor> make_cuda_executor(const plan::Plan& plan, const ExecutorOptions& options);
// See Backend::share.
std::unique_ptr<SharedDevice> share_gpu(std::span<const plan::Plan* const> plans, std::int32_t rank);

}  // namespace plimsoll::executor
