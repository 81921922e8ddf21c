// A kind of device: what lowering and a session need to know of it, so that the same plan can be made for and run on any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "collectives/transport.h"
#include "executor/core/executor.h"
#include "executor/core/shared_device.h"
#include "io/file_system.h"
#include "ops/kernel_choice.h"
#include "plan/plan.h"

namespace plimsoll::executor {

// What is there to run on.
struct DeviceMemory {
  base::Bytes total{};
  base::Bytes free{};
  std::string name;  // "NVIDIA H200", "the memory of this machine"
};

// What an executor is given beside its plan; all of it outlives the executor.
struct ExecutorOptions {
  std::int32_t rank = 0;
  collectives::Transport* transport = nullptr;  // to the other ranks; a plan of one rank needs none
  io::FileSystem* file_system = nullptr;        // for the disk tier, where the plan has one
  std::string disk_folder = {};
  SharedDevice* shared = nullptr;  // from share(): memory and streams in common with other plans; null: all of its own
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;  // as in the run file: "cpu", "cuda"

  // The kernel for an instruction of a plan; not_legal when there is none. Needs no device.
  virtual ops::KernelChoice choose(const ops::KernelQuery& query) const = 0;

  // nullopt when there is something to run on; else why not, and what would help.
  virtual std::optional<std::string> why_not_here() const = 0;

  // Of the device that this rank of the machine will use; only where there is one.
  virtual DeviceMemory memory(std::int32_t rank) const = 0;

  // `plan` must outlive the executor. All ranks of a plan must make their executors at the same time: groups are formed here.
  // bad_input when there is no device to run on.
  virtual std::unique_ptr<Executor> make_executor(const plan::Plan& plan, const ExecutorOptions& options) const = 0;

  // (optional) For executors of these plans that run in turn. not_legal where each must have all of its memory.
  virtual std::unique_ptr<SharedDevice> share(std::span<const plan::Plan* const> plans, std::int32_t rank) const;
};

}  // namespace plimsoll::executor
