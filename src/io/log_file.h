// A file of records that are appended one by one while other work goes on. That work is worth more than the log: where the disk is full,
// records wait in memory until there is room again, and only whoever needs them on the medium (sync) hears of it. A file that somebody
// removes meanwhile is made anew: what it held is lost, what follows is not.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "io/file_system.h"

namespace plimsoll::io {

struct LogNotices {
  std::function<void(const IoError&)> on_full = {};  // at the first record of a row that finds no room
  std::function<void(const Path&)> on_gone = {};     // at the first record that finds the file removed
};

class LogFile {
 public:
  LogFile(FileSystem& file_system, const Path& path, LogNotices notices = {});
  ~LogFile();  // what still waits is tried once more, without a word

  void append(std::string_view record);
  // All records on the medium, or an IoError. May be called beside append.
  void sync();

 private:
  bool replace_if_gone();
  void write_waiting();

  FileSystem& file_system_;
  Path path_;
  LogNotices notices_;
  std::mutex mutex_;
  std::shared_ptr<File> file_;  // shared with a sync under way
  std::string waiting_;
};

}  // namespace plimsoll::io
