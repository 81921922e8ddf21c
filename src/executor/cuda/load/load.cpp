// Loads the module with the CUDA backend in it, or says why not. No vendor header here: this file is in every build.
#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "base/error.h"
#include "executor/cuda/load/cuda_backend.h"
#include "executor/cuda/load/module_path.h"

namespace plimsoll::executor {

namespace {

struct Loaded {
  const Backend* backend = nullptr;
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
    if (module == nullptr) {
      return {nullptr,
              fmt::format("CUDA cannot be used here: {}; install the CUDA 13 libraries it names, or set LD_LIBRARY_PATH", dlerror())};
    }
    if (void* entry = dlsym(module, kCudaEntry); entry != nullptr) return {reinterpret_cast<CudaEntry>(entry)(), ""};
    return {nullptr, fmt::format("{} is not the module of this plimsoll; build both again", place.string())};
  }
  return {nullptr, fmt::format("this plimsoll was built without CUDA ({} is nowhere); build it with cmake --preset cuda where the CUDA "
                               "toolkit is installed, or use \"device\": \"cpu\"",
                               kModuleName)};
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

std::optional<std::string> why_no_cuda() { return loaded().backend == nullptr ? std::optional(loaded().reason) : std::nullopt; }

const Backend& cuda_backend() {
  if (loaded().backend == nullptr) base::bad_input("{}", loaded().reason);
  return *loaded().backend;
}

}  // namespace plimsoll::executor
