// The one seam through which every file operation of the product goes.
//
// FileSystem is the list of verbs. The product uses PosixFileSystem; tests wrap it in decorators that make the k-th
// operation fail or that record what was done and rebuild what a crash may leave. There is no global instance:
// whoever touches files is handed a FileSystem&.
//
// Verbs on open files live in the same interface as verbs on names, so that a decorator implements one class and
// sees everything; File is the owning handle that code works with. All failures are thrown as IoError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "io/io_error.h"

namespace plimsoll::io {

enum class OpenMode {
  read,    // must exist
  write,   // must exist; written in place by offset, also readable
  create,  // must not exist; written by offset, also readable
  append,  // made when missing; every write goes to the end
  // As create, around the page cache where the file system can: offsets, lengths and addresses are multiples of 4096.
  scratch,
};

enum class EntryKind { file, directory, other };

struct Entry {
  std::string name;
  EntryKind kind = EntryKind::other;  // of the entry itself: a symbolic link is `other`

  bool operator==(const Entry&) const = default;
};

struct Status {
  EntryKind kind = EntryKind::other;  // of what a symbolic link leads to
  std::int64_t size = 0;
};

// An open file as the verbs see it; `id` means something to the file system that opened it only.
struct OpenFile {
  std::int64_t id = -1;
  Path path;
  OpenMode mode = OpenMode::read;
};

// A read-only view of a whole file; copies share it, and it outlives the file's name.
//
// A file that somebody cuts short while it is mapped takes its last pages with it, and touching those ends the process (lost_page.h).
// check_size() asks for the present size and throws bad_input instead; cheap enough to go before every batch. check_unchanged() throws,
// too, where the file was written to since: after a read of something that has no sums of its own.
//
// A file that is in the page cache is read fastest from where it is mapped; one that is not comes in faster by read() than by touching
// it, and then a drive's error is an IoError and no signal. in_memory() tells which, for a part of the file at this moment; it is false
// where nobody knows. What was touched counts as the process's memory until it is let go of; the page cache keeps it.
class Mapping {
 public:
  // What can be asked of the system that mapped it, about parts of its bytes.
  struct Pages {
    virtual ~Pages() = default;
    virtual void check_size() const = 0;
    virtual void check_unchanged() const = 0;
    virtual bool in_memory(std::span<const std::byte> part) const = 0;
    virtual void read(std::span<const std::byte> part, std::byte* to) const = 0;
    virtual void let_go(std::span<const std::byte> part) const = 0;
  };

  Mapping() = default;
  // Bytes that lie in memory, for as long as `keeper` lives.
  Mapping(std::span<const std::byte> bytes, std::shared_ptr<const void> keeper) : bytes_(bytes), keeper_(std::move(keeper)) {}
  Mapping(std::span<const std::byte> bytes, const std::shared_ptr<const Pages>& pages)
      : bytes_(bytes), keeper_(pages), pages_(pages.get()) {}

  std::span<const std::byte> bytes() const { return bytes_; }
  void check_size() const {
    if (pages_ != nullptr) pages_->check_size();
  }
  void check_unchanged() const {
    if (pages_ != nullptr) pages_->check_unchanged();
  }
  bool in_memory(std::span<const std::byte> part) const { return pages_ == nullptr || pages_->in_memory(part); }
  void read(std::span<const std::byte> part, std::byte* to) const;
  // The faster of the two, for much that is not used at once; what was touched is let go of.
  void copy(std::span<const std::byte> part, std::byte* to) const;
  void let_go(std::span<const std::byte> part) const {
    if (pages_ != nullptr && !part.empty()) pages_->let_go(part);
  }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> keeper_;
  const Pages* pages_ = nullptr;  // the keeper's
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual OpenFile open(const Path& path, OpenMode mode) = 0;
  virtual void close(const OpenFile& file) = 0;
  virtual std::int64_t size(const OpenFile& file) = 0;
  // Fills `out` unless the file ends first; returns the bytes read. A pipe must be read from its beginning to its end.
  virtual std::size_t read_at(const OpenFile& file, std::int64_t offset, std::span<std::byte> out) = 0;
  // Writes everything or throws; what was written before a failure stays.
  virtual void write_at(const OpenFile& file, std::int64_t offset, std::span<const std::byte> data) = 0;
  virtual void append(const OpenFile& file, std::span<const std::byte> data) = 0;  // OpenMode::append only
  // Data on the medium. After a failure the file's pages are in doubt: abandon the file, never sync it again.
  virtual void sync(const OpenFile& file) = 0;
  virtual Mapping map(const Path& path) = 0;

  // Names made, renamed or removed in `directory` on the medium.
  virtual void sync_directory(const Path& directory) = 0;
  virtual void rename(const Path& from, const Path& to) = 0;   // replaces `to`, atomically
  virtual void remove(const Path& path) = 0;                   // a file, a link or an empty directory
  virtual void make_directory(const Path& path) = 0;           // parent must exist, path must not
  virtual std::vector<Entry> list(const Path& directory) = 0;  // sorted by name
  virtual std::optional<Status> status(const Path& path) = 0;  // nullopt: nothing of that name
  virtual base::Bytes free_space(const Path& path) = 0;        // what an ordinary user may still write there
  // Files below `path` are kept in memory: a tier of them would save none.
  virtual bool is_memory(const Path& /*path*/) { return false; }
};

// An open file that closes itself. The file system must outlive it.
class File {
 public:
  File(FileSystem& file_system, const Path& path, OpenMode mode);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();  // closes without a word: call close() where a late write error matters

  const Path& path() const { return open_.path; }
  std::int64_t size() const;
  std::size_t read_at(std::int64_t offset, std::span<std::byte> out) const;
  void read_exactly(std::int64_t offset, std::span<std::byte> out) const;  // a file that ends early is bad input
  void write_at(std::int64_t offset, std::span<const std::byte> data);
  void append(std::span<const std::byte> data);
  void sync();
  void close();

 private:
  void close_quietly() noexcept;

  FileSystem* file_system_;  // null once closed or moved from
  OpenFile open_;
};

}  // namespace plimsoll::io
