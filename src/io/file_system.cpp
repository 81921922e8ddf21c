#include "io/file_system.h"

#include <utility>

#include "base/stream_copy.h"

namespace plimsoll::io {

void Mapping::read(std::span<const std::byte> part, std::byte* to) const {
  pages_ == nullptr ? base::stream_copy(part, to) : pages_->read(part, to);
}

void Mapping::copy(std::span<const std::byte> part, std::byte* to) const {
  if (!in_memory(part)) return read(part, to);
  base::stream_copy(part, to);
  let_go(part);
}

File::File(FileSystem& file_system, const Path& path, OpenMode mode) : file_system_(&file_system), open_(file_system.open(path, mode)) {}

File::File(File&& other) noexcept : file_system_(std::exchange(other.file_system_, nullptr)), open_(std::move(other.open_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    close_quietly();
    file_system_ = std::exchange(other.file_system_, nullptr);
    open_ = std::move(other.open_);
  }
  return *this;
}

File::~File() { close_quietly(); }

void File::close_quietly() noexcept {
  try {
    close();
  } catch (...) {  // a destructor has nobody to tell
  }
}

void File::close() {
  if (FileSystem* file_system = std::exchange(file_system_, nullptr)) file_system->close(open_);
}

std::int64_t File::size() const {
  PLIMSOLL_CHECK(file_system_ != nullptr, "size of a closed file");
  return file_system_->size(open_);
}

std::size_t File::read_at(std::int64_t offset, std::span<std::byte> out) const {
  PLIMSOLL_CHECK(file_system_ != nullptr, "read of a closed file");
  return file_system_->read_at(open_, offset, out);
}

void File::read_exactly(std::int64_t offset, std::span<std::byte> out) const {
  const std::size_t found = read_at(offset, out);
  if (found == out.size()) return;
  base::bad_input("'{}' ends early: {} bytes wanted at offset {}, {} there", path().string(), out.size(), offset, found);
}

void File::write_at(std::int64_t offset, std::span<const std::byte> data) {
  PLIMSOLL_CHECK(file_system_ != nullptr, "write to a closed file");
  file_system_->write_at(open_, offset, data);
}

void File::append(std::span<const std::byte> data) {
  PLIMSOLL_CHECK(file_system_ != nullptr, "append to a closed file");
  file_system_->append(open_, data);
}

void File::sync() {
  PLIMSOLL_CHECK(file_system_ != nullptr, "sync of a closed file");
  file_system_->sync(open_);
}

}  // namespace plimsoll::io
