// Whether the kernels of this build run on a GPU: asked before a plan is made, since a kernel without machine code for its GPU fails only
// when it is launched.
#pragma once

#include <vector>

namespace plimsoll::kernels::cuda {

// On the device in use.
bool has_machine_code();
// The compute capabilities that the kernels were built for, times 100.
std::vector<int> built_for();

}  // namespace plimsoll::kernels::cuda
