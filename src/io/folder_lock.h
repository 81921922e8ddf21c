// Keeps a second process out of a folder that one is writing to.
//
// The lock is on the folder itself: nothing is written, and it goes with the process, however that ends. It is no operation of the
// seam (file_system.h), since no data depends on it: where a file system has no locks, everything goes on without.
#pragma once

#include <memory>
#include <optional>

#include "io/file_system.h"

namespace plimsoll::io {

class FolderLock {
 public:
  // Nothing when somebody holds it.
  static std::optional<FolderLock> take(const Path& folder);

 private:
  explicit FolderLock(std::shared_ptr<const void> held) : held_(std::move(held)) {}

  std::shared_ptr<const void> held_;
};

}  // namespace plimsoll::io
