// How a supervisor tells a process which rank it is and where the shared memory lies.
#pragma once

#include <string>

#include "collectives/local/shared_memory.h"

namespace plimsoll::collectives::local {

inline constexpr const char* kRankVariable = "PLIMSOLL_PROCESS_RANK";
inline constexpr const char* kMemoryVariable = "PLIMSOLL_PROCESS_MEMORY";

// "gave no sign of life for 5 s (process 1234)"
std::string silence_text(const Control& control, int rank);

}  // namespace plimsoll::collectives::local
