// Loads the module with NCCL in it, or says why not. No vendor header here: this file is in every build.
#include <fmt/format.h>

#include "base/error.h"
#include "base/module.h"
#include "collectives/nccl/module_path.h"
#include "collectives/nccl/nccl.h"

namespace plimsoll::collectives::nccl {

namespace {

struct Loaded {
  Entry entry = nullptr;
  std::string reason;
};

Loaded load() {
  const base::Module module = base::load_module(kModuleName, kModuleBuildFolder, kEntry);
  if (module.entry != nullptr) return {reinterpret_cast<Entry>(module.entry), ""};
  if (module.found) return {nullptr, fmt::format("NCCL cannot be used here: {}", module.reason)};
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
