// A file system that remembers what was done below one folder, and can rebuild there or elsewhere what a crash after
// any operation may leave (see crash_model.h for the kinds).
//
//   RecordingFileSystem recording(disk, folder);
//   save(recording, folder);
//   for (std::int64_t after = 0; after <= recording.operations(); ++after) {
//     recording.replay({.after = after, .kind = CrashKind::torn, .seed = 7}, disk, fresh_folder);
//     ... load(disk, fresh_folder): the old or the new, never neither, never a mix ...
//   }
#pragma once

#include <mutex>

#include "support/io/crash_model.h"

namespace plimsoll::io {

struct CrashState {
  std::int64_t after = 0;  // operations that were done before the crash
  CrashKind kind = CrashKind::killed;
  std::uint64_t seed = 0;
};

class RecordingFileSystem final : public FileSystem {
 public:
  // What is below `root` now counts as safely on the medium. Operations elsewhere pass through unrecorded.
  RecordingFileSystem(FileSystem& inner, const Path& root);

  std::int64_t operations() const;
  std::vector<Operation> log() const;  // paths relative to the root

  FileTree tree_after(const CrashState& state) const;
  // Writes that tree into `target`, which must not exist.
  void replay(const CrashState& state, FileSystem& file_system, const Path& target) const;

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
  bool is_memory(const Path& path) override { return inner_.is_memory(path); }

 private:
  std::optional<Path> below_root(const Path& path) const;
  // Appends to the log what has just succeeded; call with the mutex held, so that the log has the order of the deeds.
  void record(Operation operation);

  FileSystem& inner_;
  const Path root_;
  FileTree before_;
  mutable std::mutex mutex_;
  std::vector<Operation> log_;
};

// Everything below `root` with its content.
FileTree read_tree(FileSystem& file_system, const Path& root);
void write_tree(FileSystem& file_system, const Path& target, const FileTree& tree);

}  // namespace plimsoll::io
