// A part of the program in a shared object of its own, loaded on demand: what needs a vendor's libraries stands there, so that the program
// starts without them.
#pragma once

#include <string>

namespace plimsoll::base {

struct Module {
  void* entry = nullptr;    // the function asked for
  bool found = false;       // its file is there
  std::string reason = {};  // why `entry` is null where the file is there
};

// Looked for beside the program, where an installation keeps it, and in `build_folder`. It is never closed: errors that it threw may
// outlive any use of it.
Module load_module(const std::string& name, const std::string& build_folder, const char* entry);

}  // namespace plimsoll::base
