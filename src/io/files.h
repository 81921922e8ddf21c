// What callers do with files beyond single verbs, composed from the verbs so that every step passes the seam.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"

namespace plimsoll::io {

std::span<const std::byte> as_bytes(std::string_view text);

bool exists(FileSystem& file_system, const Path& path);

// The whole file, which may be a pipe or /dev/stdin; longer than `limit` is bad input, so that a wrong path cannot fill the memory.
std::string read_text(FileSystem& file_system, const Path& path, std::int64_t limit = std::int64_t{1} << 30);

// The new content under the same name, durably, or the old content: written beside, synced, renamed, folder synced. Into a device or a
// pipe it is written as it stands.
void replace_file(FileSystem& file_system, const Path& path, std::span<const std::byte> content);
// What a crash while the file was replaced left beside it; whoever replaces it again clears it too.
void clear_leftover(FileSystem& file_system, const Path& path);

void make_directories(FileSystem& file_system, const Path& path);  // with parents; fine when they exist

// Removes a folder with all in it, or a file; nothing of that name is fine. Never follows symbolic links.
void remove_tree(FileSystem& file_system, const Path& path);

// The existing paths that match, sorted; `*`, `?` and `[...]` match within one component. A pattern without any of
// them is returned as it is, whether or not it exists, so that opening it names the missing file.
std::vector<Path> expand_glob(FileSystem& file_system, const std::string& pattern);

}  // namespace plimsoll::io
