#include "executor/cuda/device.h"

#include <cuda_runtime.h>

#include "base/error.h"
#include "kernels/cuda/checks.h"

namespace plimsoll::executor {

namespace {

using kernels::cuda::check;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string why_none(cudaError_t code) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0)
    return "no NVIDIA driver was found; install one for CUDA " + version_text(CUDART_VERSION) + ", or use \"device\": \"cpu\"";
  if (code == cudaErrorInsufficientDriver) {
    return fmt::format("the NVIDIA driver is too old: it knows CUDA {}, this plimsoll was built with {}; install a newer driver",
                       version_text(driver), version_text(CUDART_VERSION));
  }
  if (code == cudaErrorNoDevice) return "no GPU was found (is CUDA_VISIBLE_DEVICES set?); use \"device\": \"cpu\"";
  return fmt::format("the GPUs cannot be used: {} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
}

// The kernels are machine code for 8.0 (which every 8.x runs) and 9.0.
std::optional<std::string> why_not(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (properties.major == 8 || (properties.major == 9 && properties.minor == 0)) return std::nullopt;
  return fmt::format(
      "GPU {} ({}) has compute capability {}.{}, and this plimsoll has kernels for 8.x and 9.0; build it with "
      "-DPLIMSOLL_CUDA_ARCHITECTURES, or use \"device\": \"cpu\"",
      device, properties.name, properties.major, properties.minor);
}

}  // namespace

std::optional<std::string> why_no_gpu() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return why_none(code);
  }
  return why_not(0);
}

int use_gpu(std::int32_t rank) {
  if (const std::optional<std::string> reason = why_no_gpu()) base::bad_input("{}", *reason);
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  const int device = rank % count;
  if (const std::optional<std::string> reason = why_not(device)) base::bad_input("{}", *reason);
  check(cudaSetDevice(device), "cudaSetDevice");
  return device;
}

}  // namespace plimsoll::executor
