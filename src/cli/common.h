// What the commands share.
#pragma once

#include <string>

#include "cli/commands.h"
#include "config/run.h"
#include "io/file_system.h"

namespace plimsoll::cli {

// The run file with its overrides; a model directory that it names is read.
config::Run read_run(io::FileSystem& file_system, const RunOptions& options);

// Where a run keeps its checkpoints.
std::string checkpoint_folder(const config::Run& run);

}  // namespace plimsoll::cli
