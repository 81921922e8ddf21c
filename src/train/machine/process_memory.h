// What this process has in memory that nothing can take from it: its own data, the program and its libraries. Pages of files that it
// reads are the system's, which takes them back when it needs the room, so a text of any size counts nothing here.
#pragma once

#include <string_view>

#include "base/bytes.h"

namespace plimsoll::train {

// Now, without what was freed.
base::Bytes process_memory();

// The same by what the system says of a process's mappings (/proc/PID/smaps).
base::Bytes memory_of_mappings(std::string_view smaps);

}  // namespace plimsoll::train
