#include "base/module.h"

#include <dlfcn.h>

#include <array>
#include <filesystem>

#include <fmt/format.h>

namespace plimsoll::base {

Module load_module(const std::string& name, const std::string& build_folder, const char* entry) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const std::filesystem::path& folder : std::array{program, program / "../lib/plimsoll", std::filesystem::path(build_folder)}) {
    const std::filesystem::path place = folder / name;
    if (!std::filesystem::exists(place, ignored)) continue;
    void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) return {.found = true, .reason = dlerror()};
    if (void* found = dlsym(module, entry); found != nullptr) return {.entry = found, .found = true};
    return {.found = true, .reason = fmt::format("{} is not the module of this plimsoll; build both again", place.string())};
  }
  return {};
}

}  // namespace plimsoll::base
