// A failed file operation: which one, on which path, and the errno behind it.
//
// It is a base::Error like any other for whoever only wants the sentence; code() is there for the few who must tell a
// full disk from a broken one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll::io {

using Path = std::filesystem::path;

class IoError : public base::Error {
 public:
  // `operation` completes the sentence "cannot ...", such as "open for reading".
  IoError(std::string_view operation, const Path& path, int code);

  int code() const { return code_; }  // an errno value
  const Path& path() const { return path_; }
  const std::string& operation() const { return operation_; }
  bool disk_full() const;  // ENOSPC or EDQUOT

 private:
  std::string operation_;
  Path path_;
  int code_;
};

}  // namespace plimsoll::io
