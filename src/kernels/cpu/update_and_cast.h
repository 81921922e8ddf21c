// An update and the cast of the weight that it made, in one pass over memory: what the host does for a device that computes with weights
// of another type. The cast's result is for the device alone, so it goes around the host's caches.
#pragma once

#include <string_view>

#include "kernels/cpu/kernel.h"

namespace plimsoll::kernels::cpu {

// Whether the update of this name can do it.
bool updates_and_casts(std::string_view kernel);

// Leaves what the update, and then a cast of its first output to `cast`, would leave, a skipped step included.
void run_update_and_cast(const Call& update, const Tensor& cast);

}  // namespace plimsoll::kernels::cpu
