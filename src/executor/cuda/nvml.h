// What a GPU draws and how fast its clock runs, from NVIDIA's management library where it is installed. The library is found at run
// time: the driver brings it, the toolkit need not.
#pragma once

#include <memory>
#include <optional>

#include "executor/core/executor.h"

namespace plimsoll::executor {

class Nvml {
 public:
  // Of the CUDA device of that number.
  explicit Nvml(int device);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // nullopt where there is no library or it does not know the device. Asking takes up to a millisecond, so an answer serves for a second.
  std::optional<DeviceReading> reading();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace plimsoll::executor
