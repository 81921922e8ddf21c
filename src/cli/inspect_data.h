// `plimsoll inspect` of what goes into training: token files and tokenizers.
#pragma once

#include "cli/commands.h"
#include "io/file_system.h"

namespace plimsoll::cli {

// By content where it says so (a tokenizer.json), else by name (*.model).
bool looks_like_tokenizer(io::FileSystem& file_system, const std::string& path);

void inspect_tokenizer(io::FileSystem& file_system, const InspectOptions& options);
void inspect_tokens(io::FileSystem& file_system, const InspectOptions& options);

}  // namespace plimsoll::cli
