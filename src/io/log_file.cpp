#include "io/log_file.h"

#include <algorithm>

#include "io/files.h"

namespace plimsoll::io {

namespace {

constexpr std::size_t kMostWaiting = std::size_t{64} << 20;  // months of steps

}  // namespace

LogFile::LogFile(FileSystem& file_system, const Path& path, LogNotices notices)
    : file_system_(file_system),
      path_(path),
      notices_(std::move(notices)),
      file_(std::make_shared<File>(file_system, path, OpenMode::append)) {}

LogFile::~LogFile() {
  try {
    write_waiting();
  } catch (const base::Error&) {  // told when they began to wait
  }
}

void LogFile::append(std::string_view record) {
  std::unique_lock lock(mutex_);
  const bool first = waiting_.empty();
  waiting_ += record;
  bool gone = false;
  try {
    gone = replace_if_gone();
    write_waiting();
  } catch (const IoError& error) {
    if (!error.disk_full() || waiting_.size() > kMostWaiting) throw;
    lock.unlock();
    if (first && notices_.on_full) notices_.on_full(error);
  }
  if (lock) lock.unlock();
  if (gone && notices_.on_gone) notices_.on_gone(path_);
}

// Without a name, what is appended goes nowhere, and no write says so.
bool LogFile::replace_if_gone() {
  if (file_system_.status(path_)) return false;
  const Path folder = path_.parent_path().empty() ? Path(".") : path_.parent_path();
  make_directories(file_system_, folder);
  file_ = std::make_shared<File>(file_system_, path_, OpenMode::append);
  file_system_.sync_directory(folder);
  return true;
}

void LogFile::sync() {
  std::shared_ptr<File> file;
  {
    const std::lock_guard lock(mutex_);
    write_waiting();
    file = file_;
  }
  file->sync();  // without the lock: appending must not wait for the medium
}

// A full disk may take a part of what it is given; the file's size tells how much.
void LogFile::write_waiting() {
  if (waiting_.empty()) return;
  const std::int64_t before = file_->size();
  try {
    file_->append(as_bytes(waiting_));
    waiting_.clear();
  } catch (const IoError&) {
    waiting_.erase(0, static_cast<std::size_t>(std::clamp<std::int64_t>(file_->size() - before, 0, std::ssize(waiting_))));
    throw;
  }
}

}  // namespace plimsoll::io
