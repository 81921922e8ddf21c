#include "checkpoint/retention.h"

#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "io/files.h"

namespace plimsoll::checkpoint {

namespace {

// Cheap: the manifest and the sizes of files. Reading all data of old checkpoints at every save would cost more than it
// protects from; what is verified in full is the checkpoint that was just written.
bool looks_whole(io::FileSystem& file_system, const io::Path& path) {
  try {
    open(file_system, path);
    return true;
  } catch (const base::Error&) {
    return false;
  }
}

}  // namespace

void discard(io::FileSystem& file_system, const io::Path& path) {
  const auto step = step_of(path.filename().string());
  PLIMSOLL_CHECK(step.has_value(), "'{}' is no checkpoint's name", path.string());
  const io::Path folder = path.parent_path();
  const io::Path temporary = folder / temporary_name(*step);
  io::remove_tree(file_system, temporary);
  file_system.rename(path, temporary);
  file_system.sync_directory(folder);
  io::remove_tree(file_system, temporary);
}

std::vector<std::string> remove_old(io::FileSystem& file_system, const io::Path& folder, std::int64_t step, std::int64_t keep) {
  std::vector<std::string> notes;
  try {
    std::int64_t kept = 1;
    for (const std::int64_t older : list_steps(file_system, folder)) {
      if (older >= step) continue;
      if (kept < keep) {
        kept += looks_whole(file_system, folder / step_name(older)) ? 1 : 0;
        continue;  // a damaged one among those to keep stays as well: it may be all that is left to look at
      }
      try {
        discard(file_system, folder / step_name(older));
      } catch (const base::Error& error) {
        notes.push_back(fmt::format("the old checkpoint of step {} could not be removed: {}", older, error.what()));
      }
    }
  } catch (const base::Error& error) {
    notes.push_back(fmt::format("old checkpoints in '{}' were left: {}", folder.string(), error.what()));
  }
  return notes;
}

}  // namespace plimsoll::checkpoint
