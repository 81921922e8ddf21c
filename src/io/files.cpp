#include "io/files.h"

#include <fnmatch.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace plimsoll::io {

namespace {

bool has_wildcard(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

Path parent_or_here(const Path& path) { return path.parent_path().empty() ? Path(".") : path.parent_path(); }

void remove_contents(FileSystem& file_system, const Path& directory) {
  for (const Entry& entry : file_system.list(directory)) {
    const Path child = directory / entry.name;
    if (entry.kind == EntryKind::directory) remove_contents(file_system, child);
    file_system.remove(child);
  }
}

// Extends every prefix by the entries of its folder that match one component of the pattern.
std::vector<Path> match_component(FileSystem& file_system, const std::vector<Path>& prefixes, const std::string& component) {
  std::vector<Path> matched;
  for (const Path& prefix : prefixes) {
    const Path directory = prefix.empty() ? Path(".") : prefix;
    const auto status = file_system.status(directory);
    if (!status || status->kind != EntryKind::directory) continue;
    for (const Entry& entry : file_system.list(directory)) {
      if (::fnmatch(component.c_str(), entry.name.c_str(), FNM_PERIOD) == 0) matched.push_back(prefix / entry.name);
    }
  }
  return matched;
}

// Pipes, terminals and the files of /proc do not say how much they hold.
std::string read_to_end(const File& file, std::int64_t limit) {
  constexpr std::size_t kPiece = 64 << 10;
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const std::size_t found =
        file.read_at(static_cast<std::int64_t>(before), std::as_writable_bytes(std::span(text.data() + before, kPiece)));
    text.resize(before + found);
    if (std::cmp_greater(text.size(), limit))
      base::bad_input("'{}' has more than {} bytes, the most that is expected of it", file.path().string(), limit);
    if (found < kPiece) return text;
  }
}

Path beside_of(Path path) { return path += ".tmp"; }

}  // namespace

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

bool exists(FileSystem& file_system, const Path& path) { return file_system.status(path).has_value(); }

std::string read_text(FileSystem& file_system, const Path& path, std::int64_t limit) {
  const File file(file_system, path, OpenMode::read);
  const std::int64_t size = file.size();
  if (size > limit) base::bad_input("'{}' has {} bytes; at most {} are expected in such a file", path.string(), size, limit);
  if (size == 0) return read_to_end(file, limit);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read_exactly(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

void clear_leftover(FileSystem& file_system, const Path& path) {
  const Path beside = beside_of(path);
  if (file_system.status(beside)) file_system.remove(beside);
}

namespace {

// A device, a pipe, or a name for one of the process's own streams, whatever that leads to: to rename something over it would take it
// away from everybody else.
bool is_stream(FileSystem& file_system, const Path& path) {
  const std::string name = path.lexically_normal().string();
  if (name == "/dev/stdout" || name == "/dev/stderr" || name.starts_with("/dev/fd/") || name.starts_with("/proc/")) return true;
  const std::optional<Status> status = file_system.status(path);
  return status && status->kind == EntryKind::other;
}

}  // namespace

void replace_file(FileSystem& file_system, const Path& path, std::span<const std::byte> content) {
  if (is_stream(file_system, path)) {
    File stream(file_system, path, OpenMode::append);
    stream.append(content);
    return stream.close();
  }
  const Path beside = beside_of(path);
  clear_leftover(file_system, path);
  try {
    File file(file_system, beside, OpenMode::create);
    file.write_at(0, content);
    file.sync();
    file.close();
    file_system.rename(beside, path);
  } catch (const base::Error&) {
    try {
      file_system.remove(beside);
    } catch (const base::Error&) {  // the first error is the one to tell
    }
    throw;
  }
  file_system.sync_directory(parent_or_here(path));
}

void make_directories(FileSystem& file_system, const Path& path) {
  if (path.empty()) return;
  if (const auto status = file_system.status(path)) {
    if (status->kind == EntryKind::directory) return;
    throw IoError("make the folder", path, EEXIST);
  }
  if (path.has_relative_path()) make_directories(file_system, path.parent_path());
  if (path.filename().empty()) return;  // a trailing slash: the parent was the folder itself
  try {
    file_system.make_directory(path);
  } catch (const IoError& error) {
    if (error.code() != EEXIST) throw;  // another rank may have been first
  }
}

void remove_tree(FileSystem& file_system, const Path& path) {
  if (!path.has_filename() && path.has_relative_path()) return remove_tree(file_system, path.parent_path());  // a trailing slash
  const Path directory = parent_or_here(path);
  const auto outer = file_system.status(directory);
  if (!outer || outer->kind != EntryKind::directory) return;
  for (const Entry& entry : file_system.list(directory)) {  // the entry itself: status() would follow a link
    if (entry.name != path.filename()) continue;
    if (entry.kind == EntryKind::directory) remove_contents(file_system, path);
    file_system.remove(path);
    return;
  }
}

std::vector<Path> expand_glob(FileSystem& file_system, const std::string& pattern) {
  if (!has_wildcard(pattern)) return {Path(pattern)};
  std::vector<Path> matched{Path()};
  for (const Path& component : Path(pattern)) {
    if (has_wildcard(component.string())) {
      matched = match_component(file_system, matched, component.string());
    } else {
      for (Path& prefix : matched) prefix /= component;
    }
  }
  std::erase_if(matched, [&](const Path& path) { return !file_system.status(path); });
  return matched;
}

}  // namespace plimsoll::io
