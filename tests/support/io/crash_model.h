// What may be on the medium after power is lost: a small model of a file system's memory.
//
// A *node* is a file or folder without a name; *names* are the entries of folders. Two things are remembered for
// each: what a running process sees, and what is certain to be on the medium. Data becomes certain by syncing the
// file, names by syncing the folder; the one does not imply the other. A rename is one indivisible name change and
// becomes certain when either of its folders is synced. What is not certain may be on the medium in part:
//
//   killed         the process died, the machine did not: everything it did is there
//   unsynced_lost  only what is certain is there
//   torn           all names are there; of unsynced data, any 512-byte sectors (the others read as before, or as
//                  zeros where the file grew)
//   reordered      any of the unsynced name changes and whole writes are there, later ones without earlier ones
//
// Name changes of one node stay in order even when reordered: a file cannot be renamed from a name it never had.
// The choice among "any" comes from a seed, so that a test can try many; seed 0 keeps nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/operation.h"

namespace plimsoll::io {

enum class CrashKind { killed, unsynced_lost, torn, reordered };

// Content by path relative to the root; nullopt is a folder. Parents sort before their children.
using FileTree = std::map<Path, std::optional<std::vector<std::byte>>>;

class CrashModel {
 public:
  explicit CrashModel(const FileTree& durable);

  // Paths in the operation are relative to the root; "." is the root itself.
  void apply(const Operation& operation);

  FileTree after_crash(CrashKind kind, std::uint64_t seed) const;

 private:
  using Content = std::vector<std::byte>;
  using Names = std::map<std::string, std::size_t>;  // to node indices

  struct Write {
    std::int64_t offset = 0;
    Content data;
  };
  struct Node {
    bool directory = false;
    Content durable;
    Content current;
    std::vector<Write> unsynced;
    Names durable_names;
    Names current_names;
  };
  struct NameEdit {
    std::size_t directory = 0;
    std::string name;
    std::optional<std::size_t> node;  // nullopt: the name goes away
  };
  struct NameChange {
    std::size_t node = 0;
    std::vector<NameEdit> edits;
    bool touches(std::size_t directory) const;
  };

  std::size_t find(const Path& path) const;  // by current names
  std::size_t find_parent(const Path& path) const { return find(path.parent_path()); }
  std::size_t add_node(bool directory);
  void change_names(NameChange change);
  void write(std::size_t node, std::int64_t offset, const Content& data);
  void sync_names(std::size_t directory);
  std::vector<bool> choose_changes(CrashKind kind, std::uint64_t seed) const;
  Content content_after(std::size_t node, CrashKind kind, std::uint64_t seed) const;

  std::vector<Node> nodes_;  // 0 is the root
  std::vector<NameChange> unsynced_names_;
  std::map<std::int64_t, std::size_t> open_files_;
};

}  // namespace plimsoll::io
