#include "executor/cuda/nvml.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <array>
#include <chrono>

namespace plimsoll::executor {

namespace {

// As the library's headers declare them, which the toolkit does not always bring along.
using Device = struct NvmlDevice*;
struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};
constexpr int kSuccess = 0;
constexpr int kClockOfMultiprocessors = 1;

class Library {
 public:
  Library() : handle_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) return;
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
    find(power, "nvmlDeviceGetPowerUsage");
    find(clock, "nvmlDeviceGetClockInfo");
    find(memory, "nvmlDeviceGetMemoryInfo");
    ready_ = complete_ && init_() == kSuccess;
  }
  ~Library() {
    if (ready_) shutdown_();
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool ready() const { return ready_; }

  int (*by_bus)(const char*, Device*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    complete_ = complete_ && function != nullptr;
  }

  void* handle_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  bool complete_ = true;
  bool ready_ = false;
};

}  // namespace

struct Nvml::State {
  Library library;
  Device device = nullptr;
  std::optional<DeviceReading> last;
  std::chrono::steady_clock::time_point taken;

  explicit State(int number) {
    std::array<char, 64> bus{};
    if (!library.ready() || cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), number) != cudaSuccess ||
        library.by_bus(bus.data(), &device) != kSuccess)
      device = nullptr;
  }

  std::optional<DeviceReading> ask() const {
    unsigned milliwatts = 0;
    unsigned megahertz = 0;
    Memory memory;
    if (device == nullptr || library.power(device, &milliwatts) != kSuccess ||
        library.clock(device, kClockOfMultiprocessors, &megahertz) != kSuccess || library.memory(device, &memory) != kSuccess)
      return std::nullopt;
    return DeviceReading{.memory = base::Bytes{static_cast<std::int64_t>(memory.used)},
                         .watts = static_cast<double>(milliwatts) * 1e-3,
                         .megahertz = static_cast<double>(megahertz)};
  }
};

Nvml::Nvml(int device) : state_(std::make_unique<State>(device)) {}
Nvml::~Nvml() = default;

std::optional<DeviceReading> Nvml::reading() {
  const auto now = std::chrono::steady_clock::now();
  if (!state_->last || now - state_->taken > std::chrono::seconds(1)) {
    state_->last = state_->ask();
    state_->taken = now;
  }
  return state_->last;
}

}  // namespace plimsoll::executor
