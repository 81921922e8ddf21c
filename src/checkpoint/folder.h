// The names inside a run's checkpoint folder:
//
//   step-00000100/            a checkpoint: manifest.json and data-00000.bin, data-00001.bin, ...
//   step-00000200.tmp/        one being written, or being removed; whoever finds it may remove it
//
// There is no file that says which is the latest: that is found by looking.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"

namespace plimsoll::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";

std::string step_name(std::int64_t step);
std::string temporary_name(std::int64_t step);
std::string data_name(std::int64_t file);
std::optional<std::int64_t> step_of(std::string_view name);  // of a finished checkpoint's name

// Steps of which there is something under a finished checkpoint's name, newest first; none if there is no folder.
std::vector<std::int64_t> list_steps(io::FileSystem& file_system, const io::Path& folder);

// Removes what interrupted saves and removals left. Call when no save is under way.
void remove_debris(io::FileSystem& file_system, const io::Path& folder);

// Makes the folder, with its parents, so that it is still there after a crash.
void make_durable_folder(io::FileSystem& file_system, const io::Path& folder);

}  // namespace plimsoll::checkpoint
