// A tree of files in memory as a file system that can only be read: thousands of crash states can be looked at in the
// time in which a disk would be given one.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/io/crash_model.h"

namespace plimsoll::checkpoint {

class TreeFileSystem final : public io::FileSystem {
 public:
  explicit TreeFileSystem(io::FileTree tree) : tree_(std::move(tree)) {}

  io::OpenFile open(const io::Path& path, io::OpenMode mode) override {
    if (mode != io::OpenMode::read) refuse("open for writing", path);
    content(path);
    return {.id = 0, .path = path, .mode = mode};
  }
  void close(const io::OpenFile&) override {}
  std::int64_t size(const io::OpenFile& file) override { return std::ssize(content(file.path)); }
  std::size_t read_at(const io::OpenFile& file, std::int64_t offset, std::span<std::byte> out) override {
    const std::vector<std::byte>& bytes = content(file.path);
    const std::size_t first = std::min(static_cast<std::size_t>(offset), bytes.size());
    const std::size_t count = std::min(out.size(), bytes.size() - first);
    if (count > 0) std::memcpy(out.data(), bytes.data() + first, count);
    return count;
  }
  std::vector<io::Entry> list(const io::Path& directory) override {
    if (status(directory) && status(directory)->kind != io::EntryKind::directory) throw io::IoError("list", directory, ENOTDIR);
    std::vector<io::Entry> entries;
    for (const auto& [path, bytes] : tree_) {
      if (path.parent_path() == relative(directory))
        entries.push_back({path.filename().string(), bytes ? io::EntryKind::file : io::EntryKind::directory});
    }
    return entries;
  }
  std::optional<io::Status> status(const io::Path& path) override {
    if (relative(path).empty()) return io::Status{io::EntryKind::directory, 0};
    const auto entry = tree_.find(relative(path));
    if (entry == tree_.end()) return std::nullopt;
    if (!entry->second) return io::Status{io::EntryKind::directory, 0};
    return io::Status{io::EntryKind::file, std::ssize(*entry->second)};
  }

  void write_at(const io::OpenFile& file, std::int64_t, std::span<const std::byte>) override { refuse("write", file.path); }
  void append(const io::OpenFile& file, std::span<const std::byte>) override { refuse("append to", file.path); }
  void sync(const io::OpenFile& file) override { refuse("sync", file.path); }
  io::Mapping map(const io::Path& path) override { refuse("map", path); }
  void sync_directory(const io::Path& path) override { refuse("sync", path); }
  void rename(const io::Path& path, const io::Path&) override { refuse("rename", path); }
  void remove(const io::Path& path) override { refuse("remove", path); }
  void make_directory(const io::Path& path) override { refuse("make", path); }
  base::Bytes free_space(const io::Path&) override { return {0}; }

 private:
  static io::Path relative(const io::Path& path) { return path == "." ? io::Path() : path.lexically_normal(); }
  [[noreturn]] static void refuse(std::string_view operation, const io::Path& path) { throw io::IoError(operation, path, EROFS); }
  const std::vector<std::byte>& content(const io::Path& path) const {
    const auto entry = tree_.find(relative(path));
    if (entry == tree_.end()) throw io::IoError("open", path, ENOENT);
    if (!entry->second) throw io::IoError("open", path, EISDIR);
    return *entry->second;
  }

  io::FileTree tree_;
};

}  // namespace plimsoll::checkpoint
