#include "support/io/faulty_file_system.h"

#include <cerrno>

namespace plimsoll::io {

namespace {

bool is_write(Verb verb) { return verb == Verb::write || verb == Verb::append; }

// close is left alone: it is asked for from destructors, where nothing could be reported.
bool concerns(FaultKind kind, Verb verb, OpenMode mode) {
  switch (kind) {
    case FaultKind::none: return false;
    case FaultKind::io_error: return verb != Verb::close;
    case FaultKind::no_space:
      return is_write(verb) || verb == Verb::sync || verb == Verb::sync_directory || verb == Verb::rename || verb == Verb::make_directory ||
             (verb == Verb::open && mode != OpenMode::read && mode != OpenMode::write);
    case FaultKind::short_write:
    case FaultKind::lost_write: return is_write(verb);
    case FaultKind::short_read:
    case FaultKind::flipped_read: return verb == Verb::read;
    case FaultKind::crash:
    case FaultKind::crash_midway: return true;
  }
  return false;
}

bool is_crash(FaultKind kind) { return kind == FaultKind::crash || kind == FaultKind::crash_midway; }

}  // namespace

std::int64_t FaultyFileSystem::operations() const {
  const std::scoped_lock lock(mutex_);
  return operations_;
}

bool FaultyFileSystem::reached() const {
  const std::scoped_lock lock(mutex_);
  return operations_ >= fault_.at;
}

bool FaultyFileSystem::fired() const {
  const std::scoped_lock lock(mutex_);
  return fired_;
}

FaultKind FaultyFileSystem::next(Verb verb, OpenMode mode) {
  const std::scoped_lock lock(mutex_);
  if (crashed_) return FaultKind::crash;
  ++operations_;
  if (operations_ != fault_.at || !concerns(fault_.kind, verb, mode)) return FaultKind::none;
  fired_ = true;
  crashed_ = is_crash(fault_.kind);
  return fault_.kind;
}

void FaultyFileSystem::strike(FaultKind kind, Verb verb, const Path& path) const {
  switch (kind) {
    case FaultKind::none:
    case FaultKind::short_read:
    case FaultKind::flipped_read:
    case FaultKind::lost_write: return;
    case FaultKind::io_error: throw IoError(name_of(verb), path, EIO);
    case FaultKind::no_space:
    case FaultKind::short_write: throw IoError(name_of(verb), path, ENOSPC);
    case FaultKind::crash:
    case FaultKind::crash_midway: throw CrashPoint{fault_.at};
  }
}

OpenFile FaultyFileSystem::open(const Path& path, OpenMode mode) {
  step(Verb::open, path, mode);
  return inner_.open(path, mode);
}

void FaultyFileSystem::close(const OpenFile& file) {
  const FaultKind kind = next(Verb::close);
  inner_.close(file);  // a dead process holds no descriptors either
  strike(kind, Verb::close, file.path);
}

std::int64_t FaultyFileSystem::size(const OpenFile& file) {
  step(Verb::size, file.path);
  return inner_.size(file);
}

std::size_t FaultyFileSystem::read_at(const OpenFile& file, std::int64_t offset, std::span<std::byte> out) {
  const FaultKind kind = next(Verb::read);
  strike(kind, Verb::read, file.path);
  const std::size_t got = inner_.read_at(file, offset, out);
  if (kind == FaultKind::short_read) return got / 2;
  if (kind == FaultKind::flipped_read && got > 0) out[got / 3] ^= std::byte{4};
  return got;
}

void FaultyFileSystem::write_at(const OpenFile& file, std::int64_t offset, std::span<const std::byte> data) {
  const FaultKind kind = next(Verb::write);
  if (kind == FaultKind::short_write || kind == FaultKind::crash_midway) inner_.write_at(file, offset, data.first(data.size() / 2));
  strike(kind, Verb::write, file.path);
  if (kind == FaultKind::lost_write) return;
  inner_.write_at(file, offset, data);
}

void FaultyFileSystem::append(const OpenFile& file, std::span<const std::byte> data) {
  const FaultKind kind = next(Verb::append);
  if (kind == FaultKind::short_write || kind == FaultKind::crash_midway) inner_.append(file, data.first(data.size() / 2));
  strike(kind, Verb::append, file.path);
  if (kind == FaultKind::lost_write) return;
  inner_.append(file, data);
}

void FaultyFileSystem::sync(const OpenFile& file) {
  step(Verb::sync, file.path);
  inner_.sync(file);
}

Mapping FaultyFileSystem::map(const Path& path) {
  step(Verb::map, path);
  return inner_.map(path);
}

void FaultyFileSystem::sync_directory(const Path& directory) {
  step(Verb::sync_directory, directory);
  inner_.sync_directory(directory);
}

void FaultyFileSystem::rename(const Path& from, const Path& to) {
  step(Verb::rename, to);
  inner_.rename(from, to);
}

void FaultyFileSystem::remove(const Path& path) {
  step(Verb::remove, path);
  inner_.remove(path);
}

void FaultyFileSystem::make_directory(const Path& path) {
  step(Verb::make_directory, path);
  inner_.make_directory(path);
}

std::vector<Entry> FaultyFileSystem::list(const Path& directory) {
  step(Verb::list, directory);
  return inner_.list(directory);
}

std::optional<Status> FaultyFileSystem::status(const Path& path) {
  step(Verb::status, path);
  return inner_.status(path);
}

base::Bytes FaultyFileSystem::free_space(const Path& path) {
  step(Verb::free_space, path);
  return inner_.free_space(path);
}

}  // namespace plimsoll::io
