#include "io/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "io/transfer.h"

namespace plimsoll::io {

namespace {

// One call moves at most 0x7ffff000 bytes on Linux; smaller pieces keep a signal from waiting behind gigabytes.
constexpr std::size_t kLargestCall = 1u << 30;

int descriptor(const OpenFile& file) { return static_cast<int>(file.id); }

[[noreturn]] void fail(std::string_view operation, const Path& path) { throw IoError(operation, path, errno); }

int open_flags(OpenMode mode) {
  switch (mode) {
    case OpenMode::read: return O_RDONLY;
    case OpenMode::write: return O_RDWR;
    case OpenMode::create: return O_RDWR | O_CREAT | O_EXCL;
    case OpenMode::append: return O_WRONLY | O_CREAT | O_APPEND;
    case OpenMode::scratch: return O_RDWR | O_CREAT | O_EXCL | O_DIRECT;
  }
  PLIMSOLL_CHECK(false, "open mode {}", static_cast<int>(mode));
  return 0;
}

std::string_view open_words(OpenMode mode) {
  switch (mode) {
    case OpenMode::read: return "open for reading";
    case OpenMode::write: return "open for writing";
    case OpenMode::create: return "create";
    case OpenMode::append: return "open for appending";
    case OpenMode::scratch: return "create";
  }
  return "open";
}

int open_descriptor(const Path& path, int flags, std::string_view operation) {
  for (;;) {
    const int result = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (result >= 0) return result;
    if (errno == EINVAL && (flags & O_DIRECT) != 0) {  // a file system that has only the page cache; it may have made the file
      ::unlink(path.c_str());
      flags &= ~O_DIRECT;
      continue;
    }
    if (errno != EINTR) fail(operation, path);
  }
}

// A descriptor that lives for one function, or for as long as a file is mapped.
class ScopedDescriptor {
 public:
  explicit ScopedDescriptor(int value) : value_(value) {}
  ScopedDescriptor(ScopedDescriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  ScopedDescriptor& operator=(ScopedDescriptor&&) = delete;
  ~ScopedDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }

 private:
  int value_;
};

EntryKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return EntryKind::file;
  if (S_ISDIR(mode)) return EntryKind::directory;
  return EntryKind::other;
}

TransferResult read_fully(int file, std::int64_t offset, std::span<std::byte> out) {
  return transfer_fully(out, [&](std::size_t done, std::span<std::byte> rest) -> std::int64_t {
    const std::size_t most = std::min(rest.size(), kLargestCall);
    const std::int64_t moved = ::pread(file, rest.data(), most, offset + static_cast<std::int64_t>(done));
    // A pipe has no offsets: it is read on from where it is.
    return moved < 0 && errno == ESPIPE ? ::read(file, rest.data(), most) : moved;
  });
}

}  // namespace

OpenFile PosixFileSystem::open(const Path& path, OpenMode mode) {
  const int opened = open_descriptor(path, open_flags(mode), open_words(mode));
  struct stat info{};
  const bool is_directory = ::fstat(opened, &info) == 0 && S_ISDIR(info.st_mode);
  if (is_directory) {  // open(2) allows it for reading; no verb of an open file makes sense on it
    ::close(opened);
    throw IoError(open_words(mode), path, EISDIR);
  }
  return {.id = opened, .path = path, .mode = mode};
}

void PosixFileSystem::close(const OpenFile& file) {
  // After EINTR Linux has closed the descriptor all the same; a second close could hit someone else's file.
  if (::close(descriptor(file)) != 0 && errno != EINTR) fail("close", file.path);
}

std::int64_t PosixFileSystem::size(const OpenFile& file) {
  struct stat info{};
  if (::fstat(descriptor(file), &info) != 0) fail("find the size of", file.path);
  return info.st_size;
}

std::size_t PosixFileSystem::read_at(const OpenFile& file, std::int64_t offset, std::span<std::byte> out) {
  const TransferResult result = read_fully(descriptor(file), offset, out);
  if (result.error != 0) throw IoError("read", file.path, result.error);
  return result.moved;
}

void PosixFileSystem::write_at(const OpenFile& file, std::int64_t offset, std::span<const std::byte> data) {
  PLIMSOLL_CHECK(file.mode != OpenMode::read && file.mode != OpenMode::append, "write_at needs mode write, create or scratch");
  const TransferResult result = transfer_fully(data, [&](std::size_t done, std::span<const std::byte> rest) -> std::int64_t {
    return ::pwrite(descriptor(file), rest.data(), std::min(rest.size(), kLargestCall), offset + static_cast<std::int64_t>(done));
  });
  if (result.error != 0) throw IoError("write", file.path, result.error);
  if (result.moved < data.size()) throw IoError("write", file.path, ENOSPC);
}

void PosixFileSystem::append(const OpenFile& file, std::span<const std::byte> data) {
  // pwrite on an O_APPEND descriptor ignores its offset on Linux, so the two ways of writing never share a file.
  PLIMSOLL_CHECK(file.mode == OpenMode::append, "append needs mode append");
  const TransferResult result = transfer_fully(data, [&](std::size_t, std::span<const std::byte> rest) -> std::int64_t {
    return ::write(descriptor(file), rest.data(), std::min(rest.size(), kLargestCall));
  });
  if (result.error != 0) throw IoError("append to", file.path, result.error);
  if (result.moved < data.size()) throw IoError("append to", file.path, ENOSPC);
}

void PosixFileSystem::sync(const OpenFile& file) {
  // Never repeated, not even when interrupted: the kernel may have marked lost pages clean.
  if (::fsync(descriptor(file)) != 0) fail("sync", file.path);
}

namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// All of the pages that have a part of it.
std::span<std::byte> pages_of(std::span<const std::byte> part) {
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = begin / page_size() * page_size();
  return {reinterpret_cast<std::byte*>(first), begin + part.size() - first};
}

// The system brings in pages and drops them many at a time; to look at every one of them takes about a tenth of the time to copy them.
constexpr std::size_t kPagesLookedAt = 64;

// Where a page is touched, the system maps what else it has of so many bytes around it.
constexpr std::uintptr_t kMappedAtOnce = std::uintptr_t{1} << 16;

class MappedPages : public Mapping::Pages {
 public:
  MappedPages(const Path& path, ScopedDescriptor file, const struct stat& opened)
      : path_(path),
        file_(std::move(file)),
        length_(static_cast<std::size_t>(opened.st_size)),
        written_(opened.st_mtim),
        address_(::mmap(nullptr, length_, PROT_READ, MAP_SHARED, file_.get(), 0)) {
    if (address_ == MAP_FAILED) fail("map", path);
  }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;
  ~MappedPages() override { ::munmap(address_, length_); }

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), length_}; }

  void check_size() const override { check_size(status()); }

  void check_unchanged() const override {
    const struct stat now = status();
    check_size(now);
    if (now.st_mtim.tv_sec == written_.tv_sec && now.st_mtim.tv_nsec == written_.tv_nsec) return;
    base::bad_input("'{}' was written to after it was opened; expected it to stay as it is while it is read", path_.string());
  }

  bool in_memory(std::span<const std::byte> part) const override {
    const std::span<std::byte> pages = pages_of(part);
    for (std::size_t at = 0; at < pages.size(); at += kPagesLookedAt * page_size()) {
      unsigned char state = 0;
      if (::mincore(pages.data() + at, 1, &state) != 0 || (state & 1) == 0) return false;
    }
    return true;
  }

  void read(std::span<const std::byte> part, std::byte* to) const override {
    const std::int64_t first = part.data() - bytes().data();
    const TransferResult result = read_fully(file_.get(), first, {to, part.size()});
    if (result.error != 0) throw IoError("read", path_, result.error);
    if (result.moved == part.size()) return;
    check_size();
    throw IoError("read", path_, EIO);  // as long as before, and yet it ends
  }

  void let_go(std::span<const std::byte> part) const override {
    const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
    const auto own = reinterpret_cast<std::uintptr_t>(address_);
    const std::uintptr_t first = std::max(own, begin / kMappedAtOnce * kMappedAtOnce);
    const std::uintptr_t end = std::min(own + length_, (begin + part.size() + kMappedAtOnce - 1) / kMappedAtOnce * kMappedAtOnce);
    ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
  }

 private:
  struct stat status() const {
    struct stat now{};
    if (::fstat(file_.get(), &now) != 0) fail("find the size of", path_);
    return now;
  }

  void check_size(const struct stat& now) const {
    if (std::cmp_greater_equal(now.st_size, length_)) return;
    base::bad_input("'{}' had {} bytes when it was opened and has {} now; expected it to stay as it is while it is read", path_.string(),
                    length_, now.st_size);
  }

  Path path_;
  ScopedDescriptor file_;
  std::size_t length_;
  timespec written_;
  void* address_;
};

}  // namespace

Mapping PosixFileSystem::map(const Path& path) {
  ScopedDescriptor opened(open_descriptor(path, O_RDONLY, "open for reading"));
  struct stat info{};
  if (::fstat(opened.get(), &info) != 0) fail("find the size of", path);
  if (S_ISDIR(info.st_mode)) throw IoError("map", path, EISDIR);
  if (info.st_size == 0) return {};  // mmap refuses empty ranges
  auto pages = std::make_shared<const MappedPages>(path, std::move(opened), info);
  const std::span<const std::byte> bytes = pages->bytes();
  return {bytes, std::shared_ptr<const Mapping::Pages>(std::move(pages))};
}

void PosixFileSystem::sync_directory(const Path& directory) {
  const ScopedDescriptor opened(open_descriptor(directory, O_RDONLY | O_DIRECTORY, "open the folder"));
  // EINVAL: a file system that has no such thing keeps its names in order by other means.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) fail("sync the folder", directory);
}

void PosixFileSystem::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    throw IoError(fmt::format("rename '{}' to", from.string()), to, code);
  }
}

void PosixFileSystem::remove(const Path& path) {
  if (::remove(path.c_str()) != 0) fail("remove", path);
}

void PosixFileSystem::make_directory(const Path& path) {
  if (::mkdir(path.c_str(), 0777) != 0) fail("make the folder", path);
}

std::vector<Entry> PosixFileSystem::list(const Path& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), &::closedir);
  if (stream == nullptr) fail("list", directory);
  std::vector<Entry> entries;
  for (;;) {
    errno = 0;
    const dirent* item = ::readdir(stream.get());
    if (item == nullptr) break;
    const std::string_view name = item->d_name;
    if (name == "." || name == "..") continue;
    struct stat info{};
    // d_type is not filled on every file system. An entry that vanished meanwhile is simply not there.
    if (::fstatat(::dirfd(stream.get()), item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    entries.push_back({.name = std::string(name), .kind = kind_of(info.st_mode)});
  }
  if (errno != 0) fail("list", directory);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

std::optional<Status> PosixFileSystem::status(const Path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail("look at", path);
  }
  return Status{.kind = kind_of(info.st_mode), .size = info.st_size};
}

base::Bytes PosixFileSystem::free_space(const Path& path) {
  struct statvfs info{};
  if (::statvfs(path.c_str(), &info) != 0) fail("find the free space of", path);
  return {static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize)};
}

bool PosixFileSystem::is_memory(const Path& path) {
  struct statfs info{};
  if (::statfs(path.c_str(), &info) != 0) fail("find the kind of file system of", path);
  return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

}  // namespace plimsoll::io
