// Runs a plan on the processor: kernels are looked up and prepared once, addresses are resolved once, and a step is a
// loop over resolved calls, one loop and one thread for each stream.
#pragma once

#include <memory>

#include "collectives/transport.h"
#include "executor/core/executor.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// `plan` and `transport` must outlive the executor; a plan of one rank needs no transport. All ranks of a plan must make
// their executors at the same time: groups are formed here.
std::unique_ptr<Executor> make_cpu_executor(const plan::Plan& plan, std::int32_t rank, collectives::Transport* transport = nullptr);

}  // namespace plimsoll::executor
