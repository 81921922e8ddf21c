// Which checkpoints go when a new one is safe.
#pragma once

#include <string>
#include <vector>

#include "io/file_system.h"

namespace plimsoll::checkpoint {

// Keeps the checkpoint of `step` and the `keep - 1` newest before it whose manifests are whole; what is older goes, what
// is newer is left alone. Returns what could not be removed, in words: the new checkpoint is safe either way.
std::vector<std::string> remove_old(io::FileSystem& file_system, const io::Path& folder, std::int64_t step, std::int64_t keep);

// Takes a checkpoint out of sight in one move, then removes it. A crash between leaves debris, never half a checkpoint.
void discard(io::FileSystem& file_system, const io::Path& path);

}  // namespace plimsoll::checkpoint
