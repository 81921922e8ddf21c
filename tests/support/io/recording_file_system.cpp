#include "support/io/recording_file_system.h"

#include <functional>

#include "io/files.h"

namespace plimsoll::io {

namespace {

Path normal(const Path& path) {
  Path result = std::filesystem::absolute(path).lexically_normal();
  return result.has_filename() ? result : result.parent_path();  // drops a trailing slash
}

}  // namespace

FileTree read_tree(FileSystem& file_system, const Path& root) {
  FileTree tree;
  const std::function<void(const Path&, const Path&)> visit = [&](const Path& directory, const Path& prefix) {
    for (const Entry& entry : file_system.list(directory)) {
      const Path path = directory / entry.name;
      if (entry.kind == EntryKind::directory) {
        tree[prefix / entry.name] = std::nullopt;
        visit(path, prefix / entry.name);
      } else if (entry.kind == EntryKind::file) {
        const Mapping mapping = file_system.map(path);
        tree[prefix / entry.name] = std::vector<std::byte>(mapping.bytes().begin(), mapping.bytes().end());
      }
    }
  };
  visit(root, {});
  return tree;
}

void write_tree(FileSystem& file_system, const Path& target, const FileTree& tree) {
  file_system.make_directory(target);
  for (const auto& [path, content] : tree) {
    if (content) {
      File(file_system, target / path, OpenMode::create).write_at(0, *content);
    } else {
      file_system.make_directory(target / path);
    }
  }
}

RecordingFileSystem::RecordingFileSystem(FileSystem& inner, const Path& root)
    : inner_(inner), root_(normal(root)), before_(read_tree(inner, root)) {}

std::int64_t RecordingFileSystem::operations() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::int64_t>(log_.size());
}

std::vector<Operation> RecordingFileSystem::log() const {
  const std::scoped_lock lock(mutex_);
  return log_;
}

FileTree RecordingFileSystem::tree_after(const CrashState& state) const {
  const std::vector<Operation> log = this->log();
  PLIMSOLL_CHECK(state.after >= 0 && state.after <= static_cast<std::int64_t>(log.size()), "crash after {} of {} operations", state.after,
                 log.size());
  CrashModel model(before_);
  for (std::int64_t i = 0; i < state.after; ++i) model.apply(log[static_cast<std::size_t>(i)]);
  return model.after_crash(state.kind, state.seed);
}

void RecordingFileSystem::replay(const CrashState& state, FileSystem& file_system, const Path& target) const {
  write_tree(file_system, target, tree_after(state));
}

std::optional<Path> RecordingFileSystem::below_root(const Path& path) const {
  Path relative = normal(path).lexically_relative(root_);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative;
}

void RecordingFileSystem::record(Operation operation) {
  const std::optional<Path> path = below_root(operation.path);
  if (operation.verb == Verb::rename) {
    const std::optional<Path> to = below_root(operation.to);
    PLIMSOLL_CHECK(path.has_value() == to.has_value(), "a rename into or out of the recorded folder: {}", to_string(operation));
    if (to) operation.to = *to;
  }
  if (!path) return;
  operation.path = *path;
  log_.push_back(std::move(operation));
}

OpenFile RecordingFileSystem::open(const Path& path, OpenMode mode) {
  const std::scoped_lock lock(mutex_);
  const bool made = mode == OpenMode::create || mode == OpenMode::scratch || (mode == OpenMode::append && !inner_.status(path));
  OpenFile file = inner_.open(path, mode);
  record({.verb = Verb::open, .path = path, .file = file.id, .mode = mode, .made = made});
  return file;
}

void RecordingFileSystem::close(const OpenFile& file) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::close, .path = file.path, .file = file.id});  // before: the id may be given out again at once
  inner_.close(file);
}

std::int64_t RecordingFileSystem::size(const OpenFile& file) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::size, .path = file.path, .file = file.id});
  return inner_.size(file);
}

std::size_t RecordingFileSystem::read_at(const OpenFile& file, std::int64_t offset, std::span<std::byte> out) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::read, .path = file.path, .file = file.id, .offset = offset, .length = std::ssize(out)});
  return inner_.read_at(file, offset, out);
}

void RecordingFileSystem::write_at(const OpenFile& file, std::int64_t offset, std::span<const std::byte> data) {
  const std::scoped_lock lock(mutex_);
  inner_.write_at(file, offset, data);
  record({.verb = Verb::write,
          .path = file.path,
          .file = file.id,
          .offset = offset,
          .length = std::ssize(data),
          .data = {data.begin(), data.end()}});
}

void RecordingFileSystem::append(const OpenFile& file, std::span<const std::byte> data) {
  const std::scoped_lock lock(mutex_);
  inner_.append(file, data);
  record({.verb = Verb::append, .path = file.path, .file = file.id, .length = std::ssize(data), .data = {data.begin(), data.end()}});
}

void RecordingFileSystem::sync(const OpenFile& file) {
  const std::scoped_lock lock(mutex_);
  inner_.sync(file);
  record({.verb = Verb::sync, .path = file.path, .file = file.id});
}

Mapping RecordingFileSystem::map(const Path& path) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::map, .path = path});
  return inner_.map(path);
}

void RecordingFileSystem::sync_directory(const Path& directory) {
  const std::scoped_lock lock(mutex_);
  inner_.sync_directory(directory);
  record({.verb = Verb::sync_directory, .path = directory});
}

void RecordingFileSystem::rename(const Path& from, const Path& to) {
  const std::scoped_lock lock(mutex_);
  inner_.rename(from, to);
  record({.verb = Verb::rename, .path = from, .to = to});
}

void RecordingFileSystem::remove(const Path& path) {
  const std::scoped_lock lock(mutex_);
  inner_.remove(path);
  record({.verb = Verb::remove, .path = path});
}

void RecordingFileSystem::make_directory(const Path& path) {
  const std::scoped_lock lock(mutex_);
  inner_.make_directory(path);
  record({.verb = Verb::make_directory, .path = path});
}

std::vector<Entry> RecordingFileSystem::list(const Path& directory) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::list, .path = directory});
  return inner_.list(directory);
}

std::optional<Status> RecordingFileSystem::status(const Path& path) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::status, .path = path});
  return inner_.status(path);
}

base::Bytes RecordingFileSystem::free_space(const Path& path) {
  const std::scoped_lock lock(mutex_);
  record({.verb = Verb::free_space, .path = path});
  return inner_.free_space(path);
}

}  // namespace plimsoll::io
