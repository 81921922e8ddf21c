// Files of a fuzz target: a few names with bytes in memory, which can be read and mapped and nothing else.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "io/file_system.h"
#include "io/files.h"

namespace plimsoll::tests {

class MemoryFiles final : public io::FileSystem {
 public:
  void put(const io::Path& path, std::string bytes) { files_[path] = std::make_shared<std::string>(std::move(bytes)); }

  io::OpenFile open(const io::Path& path, io::OpenMode mode) override {
    content(path);
    return {.id = 0, .path = path, .mode = mode};
  }
  void close(const io::OpenFile&) override {}
  std::int64_t size(const io::OpenFile& file) override { return std::ssize(*content(file.path)); }
  std::size_t read_at(const io::OpenFile& file, std::int64_t offset, std::span<std::byte> out) override {
    const std::string& bytes = *content(file.path);
    const std::size_t first = std::min(static_cast<std::size_t>(offset), bytes.size());
    const std::size_t count = std::min(out.size(), bytes.size() - first);
    if (count > 0) std::memcpy(out.data(), bytes.data() + first, count);
    return count;
  }
  io::Mapping map(const io::Path& path) override {
    // A copy of exactly this size, so that a read past the end is seen by the sanitizers.
    const auto copy = std::make_shared<std::vector<std::byte>>();
    const auto bytes = io::as_bytes(*content(path));
    copy->assign(bytes.begin(), bytes.end());
    return {*copy, copy};
  }
  std::optional<io::Status> status(const io::Path& path) override {
    if (!files_.contains(path)) return std::nullopt;
    return io::Status{io::EntryKind::file, std::ssize(*files_.at(path))};
  }

  void write_at(const io::OpenFile& file, std::int64_t, std::span<const std::byte>) override { refuse(file.path); }
  void append(const io::OpenFile& file, std::span<const std::byte>) override { refuse(file.path); }
  void sync(const io::OpenFile& file) override { refuse(file.path); }
  void sync_directory(const io::Path& path) override { refuse(path); }
  void rename(const io::Path& path, const io::Path&) override { refuse(path); }
  void remove(const io::Path& path) override { refuse(path); }
  void make_directory(const io::Path& path) override { refuse(path); }
  std::vector<io::Entry> list(const io::Path& path) override { refuse(path); }
  base::Bytes free_space(const io::Path&) override { return {0}; }

 private:
  std::shared_ptr<std::string> content(const io::Path& path) {
    const auto file = files_.find(path);
    if (file == files_.end()) throw io::IoError("open", path, ENOENT);
    return file->second;
  }
  [[noreturn]] static void refuse(const io::Path& path) { throw io::IoError("change", path, EROFS); }

  std::map<io::Path, std::shared_ptr<std::string>> files_;
};

}  // namespace plimsoll::tests
