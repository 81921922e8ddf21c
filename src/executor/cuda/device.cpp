#include "executor/cuda/device.h"

#include <cuda_runtime.h>

#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/machine_code.h"

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

std::string names_of(const std::vector<int>& capabilities) {
  std::vector<std::string> names;
  for (const int capability : capabilities) names.push_back(fmt::format("{}.{}", capability / 100, capability % 100 / 10));
  return fmt::format("{}", fmt::join(names, " and "));
}

// Uses the device.
std::optional<std::string> why_not(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  check(cudaSetDevice(device), "cudaSetDevice");
  if (kernels::cuda::has_machine_code()) return std::nullopt;
  return fmt::format(
      "GPU {} ({}) has compute capability {}.{}, and this plimsoll has kernels for {}; build it with -DPLIMSOLL_CUDA_ARCHITECTURES={}{}, "
      "or "
      "use \"device\": \"cpu\"",
      device, properties.name, properties.major, properties.minor, names_of(kernels::cuda::built_for()), properties.major,
      properties.minor);
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
  return device;
}

}  // namespace plimsoll::executor
