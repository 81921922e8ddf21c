#include "executor/cpu/cpu_backend.h"

#include <sys/sysinfo.h>

#include "executor/cpu/cpu_executor.h"
#include "kernels/cpu/table.h"

namespace plimsoll::executor {

namespace {

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  ops::KernelChoice choose(const ops::KernelQuery& query) const override { return kernels::cpu::choose(query); }
  std::optional<std::string> why_not_here() const override { return std::nullopt; }

  DeviceMemory memory(std::int32_t) const override {
    struct sysinfo machine{};
    sysinfo(&machine);
    const auto bytes = [&](unsigned long count) {
      return base::Bytes{static_cast<std::int64_t>(count) * static_cast<std::int64_t>(machine.mem_unit)};
    };
    return {bytes(machine.totalram), bytes(machine.freeram), "the memory of this machine"};
  }

  std::unique_ptr<Executor> make_executor(const plan::Plan& plan, const ExecutorOptions& options) const override {
    return make_cpu_executor(plan, options);
  }

  std::unique_ptr<SharedDevice> share(std::span<const plan::Plan* const> plans, std::int32_t rank) const override {
    return share_cpu(plans, rank);
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace plimsoll::executor
