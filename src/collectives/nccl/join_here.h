// join() of nccl.h without a module in between: for the module itself and for tests.
#pragma once

#include <memory>

#include "collectives/nccl/nccl.h"

namespace plimsoll::collectives::nccl {

std::unique_ptr<Transport> join_here(const Launch& launch, const Options& options);

}  // namespace plimsoll::collectives::nccl
