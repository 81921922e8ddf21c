// An update and the weight that it made in another type, in one pass over memory: what the host does for a device that computes with such
// weights. The copy is for the device alone, so it goes around the host's caches.
#pragma once

#include <string_view>

#include "kernels/cpu/kernel.h"

namespace plimsoll::kernels::cpu {

// Whether the update of this name can do it.
bool updates_and_casts(std::string_view kernel);

// An update that makes the copy itself, where nobody but the device will read that.
void run_update_with_leaving_copy(const Call& update);

// Leaves what the update, and then a cast of its first output to `cast`, would leave, a skipped step included.
void run_update_and_cast(const Call& update, const Tensor& cast);

}  // namespace plimsoll::kernels::cpu
