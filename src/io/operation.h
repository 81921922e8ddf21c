// One file operation as data: what the test decorators count, log and replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_system.h"

namespace plimsoll::io {

enum class Verb {
  open,
  close,
  size,
  read,
  write,
  append,
  sync,
  map,
  sync_directory,
  rename,
  remove,
  make_directory,
  list,
  status,
  free_space
};

struct Operation {
  Verb verb = Verb::open;
  Path path;
  Path to = {};                      // rename only
  std::int64_t file = -1;            // verbs on an open file: which one; open: the one it gave
  OpenMode mode = OpenMode::read;    // open only
  bool made = false;                 // open only: the file did not exist before
  std::int64_t offset = 0;           // read, write
  std::int64_t length = 0;           // read, write, append
  std::vector<std::byte> data = {};  // write, append, in a log that can be replayed
};

std::string_view name_of(Verb verb);
std::string to_string(const Operation& operation);

}  // namespace plimsoll::io
