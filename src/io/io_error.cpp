#include "io/io_error.h"

#include <cerrno>
#include <system_error>

namespace plimsoll::io {

namespace {

// What the user named wrongly is bad input; what the machine failed at is not.
base::ErrorKind kind_of(int code) {
  switch (code) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case EEXIST:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EROFS:
    case ENOTEMPTY: return base::ErrorKind::bad_input;
    default: return base::ErrorKind::other;
  }
}

std::string_view advice_for(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT: return "; free some space or choose another folder";
    case EMFILE:
    case ENFILE: return "; raise the limit on open files (ulimit -n)";
    default: return "";
  }
}

}  // namespace

IoError::IoError(std::string_view operation, const Path& path, int code)
    : base::Error(kind_of(code), fmt::format("cannot {} '{}': {} (errno {}){}", operation, path.string(),
                                             std::generic_category().message(code), code, advice_for(code))),
      operation_(operation),
      path_(path),
      code_(code) {}

bool IoError::disk_full() const { return code_ == ENOSPC || code_ == EDQUOT; }

}  // namespace plimsoll::io
