#include "io/log_file.h"

#include <algorithm>

#include "io/files.h"

namespace plimsoll::io {

namespace {

constexpr std::size_t kMostWaiting = std::size_t{64} << 20;  // months of steps

}  // namespace

LogFile::LogFile(FileSystem& file_system, const Path& path, std::function<void(const IoError&)> on_full)
    : file_(file_system, path, OpenMode::append), on_full_(std::move(on_full)) {}

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
  try {
    write_waiting();
  } catch (const IoError& error) {
    if (!error.disk_full() || waiting_.size() > kMostWaiting) throw;
    lock.unlock();
    if (first && on_full_) on_full_(error);
  }
}

void LogFile::sync() {
  {
    const std::lock_guard lock(mutex_);
    write_waiting();
  }
  file_.sync();  // without the lock: appending must not wait for the medium
}

// A full disk may take a part of what it is given; the file's size tells how much.
void LogFile::write_waiting() {
  if (waiting_.empty()) return;
  const std::int64_t before = file_.size();
  try {
    file_.append(as_bytes(waiting_));
    waiting_.clear();
  } catch (const IoError&) {
    waiting_.erase(0, static_cast<std::size_t>(std::clamp<std::int64_t>(file_.size() - before, 0, std::ssize(waiting_))));
    throw;
  }
}

}  // namespace plimsoll::io
