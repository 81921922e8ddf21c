#include "io/folder_lock.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "io/io_error.h"

namespace plimsoll::io {

std::optional<FolderLock> FolderLock::take(const Path& folder) {
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) throw IoError("open the folder", folder, errno);
  std::shared_ptr<const int> held(new int(opened), [](const int* descriptor) {
    ::close(*descriptor);
    delete descriptor;
  });
  if (::flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return FolderLock(std::move(held));
}

}  // namespace plimsoll::io
