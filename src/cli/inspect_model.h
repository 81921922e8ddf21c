// What `plimsoll inspect` says about models: safetensors files, Hugging Face folders, checkpoints and folders of them.
#pragma once

#include "cli/commands.h"
#include "io/file_system.h"

namespace plimsoll::cli {

// True for a safetensors file or the index of several, by name or by content.
bool looks_like_safetensors(io::FileSystem& file_system, const io::Path& path);
void inspect_safetensors(io::FileSystem& file_system, const InspectOptions& options);

// A model folder, a checkpoint, a run's folder or its checkpoints; bad_input on any other.
void inspect_folder(io::FileSystem& file_system, const InspectOptions& options);

}  // namespace plimsoll::cli
