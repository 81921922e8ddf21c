// A file system whose k-th operation goes wrong, for tests that try every k.
//
//   for (std::int64_t k = 1;; ++k) {
//     FaultyFileSystem faulty(disk, {.at = k, .kind = FaultKind::no_space});
//     ... save through faulty, expect an Error or success; load through disk, expect the old or the new ...
//     if (!faulty.reached()) break;   // fewer than k operations: all were tried
//   }
#pragma once

#include <cstdint>
#include <mutex>

#include "io/operation.h"

namespace plimsoll::io {

enum class FaultKind {
  none,
  io_error,      // EIO from any verb
  no_space,      // ENOSPC from a verb that can need space
  short_write,   // half the data is written, then ENOSPC
  short_read,    // a read gives half of what there is
  flipped_read,  // a read gives one wrong bit, and nobody says so
  lost_write,    // a write is not done, and nobody says so
  crash,         // CrashPoint instead of the operation; everything later is refused
  crash_midway,  // as crash, but half of a write still happens
};

struct Fault {
  std::int64_t at = 0;  // counted from 1
  FaultKind kind = FaultKind::none;
};

// The process is gone. Deliberately not a std::exception: no handler for ordinary errors may swallow it.
struct CrashPoint {
  std::int64_t operation = 0;
};

class FaultyFileSystem final : public FileSystem {
 public:
  FaultyFileSystem(FileSystem& inner, Fault fault) : inner_(inner), fault_(fault) {}

  std::int64_t operations() const;  // asked for so far, the failed one included
  bool reached() const;             // the k-th operation was asked for (it may be one that this kind leaves alone)
  bool fired() const;               // and it went wrong

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
  // Counts, and returns what to do to this operation.
  FaultKind next(Verb verb, OpenMode mode = OpenMode::read);
  // Throws what `kind` says; returns for none.
  void strike(FaultKind kind, Verb verb, const Path& path) const;
  void step(Verb verb, const Path& path, OpenMode mode = OpenMode::read) { strike(next(verb, mode), verb, path); }

  FileSystem& inner_;
  const Fault fault_;
  mutable std::mutex mutex_;
  std::int64_t operations_ = 0;
  bool fired_ = false;
  bool crashed_ = false;
};

}  // namespace plimsoll::io
