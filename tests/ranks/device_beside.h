// This machine's processor as a device beside the host: plans have a stream of its own for what the host computes.
#pragma once

#include "executor/cpu/cpu_backend.h"

namespace plimsoll::ranks {

class DeviceBeside final : public executor::Backend {
 public:
  std::string_view name() const override { return "beside"; }
  ops::KernelChoice choose(const ops::KernelQuery& query) const override { return executor::cpu_backend().choose(query); }
  std::optional<std::string> why_not_here() const override { return std::nullopt; }
  executor::DeviceMemory memory(std::int32_t rank) const override { return executor::cpu_backend().memory(rank); }
  std::unique_ptr<executor::Executor> make_executor(const plan::Plan& plan, const executor::ExecutorOptions& options) const override {
    return executor::cpu_backend().make_executor(plan, options);
  }
};

}  // namespace plimsoll::ranks
