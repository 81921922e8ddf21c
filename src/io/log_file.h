// A file of records that are appended one by one while other work goes on. That work is worth more than the log: where the disk is full,
// records wait in memory until there is room again, and only whoever needs them on the medium (sync) hears of it.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "io/file_system.h"

namespace plimsoll::io {

class LogFile {
 public:
  // `on_full` is called with the error at the first record of a row that finds no room.
  LogFile(FileSystem& file_system, const Path& path, std::function<void(const IoError&)> on_full = {});
  ~LogFile();  // what still waits is tried once more, without a word

  void append(std::string_view record);
  // All records on the medium, or an IoError. May be called beside append.
  void sync();

 private:
  void write_waiting();

  File file_;
  std::function<void(const IoError&)> on_full_;
  std::mutex mutex_;
  std::string waiting_;
};

}  // namespace plimsoll::io
