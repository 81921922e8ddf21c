// Loads the module with the CUDA backend in it, or says why not. No vendor header here: this file is in every build.
#include <dlfcn.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/module.h"
#include "executor/cuda/load/cuda_backend.h"
#include "executor/cuda/load/module_path.h"

namespace plimsoll::executor {

namespace {

struct Loaded {
  const Backend* backend = nullptr;
  std::string reason;
};

Loaded load() {
  const base::Module module = base::load_module(kModuleName, kModuleBuildFolder, kCudaEntry);
  if (module.entry != nullptr) return {reinterpret_cast<CudaEntry>(module.entry)(), ""};
  if (module.found) {
    return {nullptr,
            fmt::format("CUDA cannot be used here: {}; install the CUDA 13 libraries it names, or set LD_LIBRARY_PATH", module.reason)};
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

bool has_cuda_driver() {
  static const bool once = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != nullptr) dlclose(driver);
    return driver != nullptr;
  }();
  return once;
}

const Backend& cuda_backend() {
  if (loaded().backend == nullptr) base::bad_input("{}", loaded().reason);
  return *loaded().backend;
}

}  // namespace plimsoll::executor
