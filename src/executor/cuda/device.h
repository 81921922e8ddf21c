// The GPUs of this machine, and whether this build can use them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace plimsoll::executor {

// nullopt when there is a GPU that this build has kernels for; else what is in the way and what would help.
std::optional<std::string> why_no_gpu();

// Makes the GPU of this rank current for the calling thread and says which it is: ranks of a machine are dealt out over its
// GPUs in turn. bad_input when it cannot be used.
int use_gpu(std::int32_t rank);

}  // namespace plimsoll::executor
