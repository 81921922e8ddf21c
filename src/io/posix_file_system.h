// The real thing: each verb is one system call or a loop around one.
#pragma once

#include "io/file_system.h"

namespace plimsoll::io {

class PosixFileSystem final : public FileSystem {
 public:
  OpenFile open(const Path& path, OpenMode mode) override;
  void close(const OpenFile& file) override;
  std::int64_t size(const OpenFile& file) override;
  std::size_t read_at(const OpenFile& file, std::int64_t offset, std::span<std::byte> out) override;
  void write_at(const OpenFile& file, std::int64_t offset, std::span<const std::byte> data) override;
  void append(const OpenFile& file, std::span<const std::byte> data) override;
  void sync(const OpenFile& file) override;
  Mapping map(const Path& path) override;
  void sync_directory(const Path& directory) override;
  void rename(const Path& from, const Path& to) override;
  void remove(const Path& path) override;
  void make_directory(const Path& path) override;
  std::vector<Entry> list(const Path& directory) override;
  std::optional<Status> status(const Path& path) override;
  base::Bytes free_space(const Path& path) override;
  bool is_memory(const Path& path) override;
};

}  // namespace plimsoll::io
