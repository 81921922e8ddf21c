// Loads the module with NCCL in it, or says why not. No vendor header here: this file is in every build.
#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "collectives/nccl/module_path.h"
#include "collectives/nccl/nccl.h"

namespace plimsoll::collectives::nccl {

namespace {

struct Loaded {
  Entry entry = nullptr;
  std::string reason;
};

// Beside the program, where an installation keeps it, where it was built.
std::vector<std::filesystem::path> places() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return {program / kModuleName, program / "../lib/plimsoll" / kModuleName, std::filesystem::path(kModuleBuildFolder) / kModuleName};
}

Loaded load() {
  for (const std::filesystem::path& place : places()) {
    std::error_code ignored;
    if (!std::filesystem::exists(place, ignored)) continue;
    void* module = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: errors it threw may outlive any use of it
    if (module == nullptr) return {nullptr, fmt::format("NCCL cannot be used here: {}", dlerror())};
    if (void* entry = dlsym(module, kEntry); entry != nullptr) return {reinterpret_cast<Entry>(entry), ""};
    return {nullptr, fmt::format("{} is not the module of this plimsoll; build both again", place.string())};
  }
  return {nullptr,
          fmt::format("this plimsoll was built without NCCL ({} is nowhere); install the CUDA toolkit and libnccl-dev and build it "
                      "again, or use --ranks N or mpirun",
                      kModuleName)};
}

}  // namespace

std::optional<std::string> why_missing() {
  const Loaded loaded = load();
  return loaded.entry == nullptr ? std::optional(loaded.reason) : std::nullopt;
}

std::unique_ptr<Transport> join(const Launch& launch, const Options& options) {
  const Loaded loaded = load();
  if (loaded.entry == nullptr) base::bad_input("{}", loaded.reason);
  return std::unique_ptr<Transport>(loaded.entry(launch, options));
}

}  // namespace plimsoll::collectives::nccl
