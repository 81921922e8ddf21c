// The backend that the module shows to whoever loads it.
#include <cuda_runtime.h>

#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/device.h"
#include "executor/cuda/load/cuda_backend.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/table.h"

namespace plimsoll::executor {

namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  ops::KernelChoice choose(const ops::KernelQuery& query) const override { return kernels::cuda::choose(query); }
  std::optional<std::string> why_not_here() const override { return why_no_gpu(); }

  DeviceMemory memory(std::int32_t rank) const override {
    cudaDeviceProp properties{};
    kernels::cuda::check(cudaGetDeviceProperties(&properties, use_gpu(rank)), "cudaGetDeviceProperties");
    std::size_t free = 0;
    std::size_t total = 0;
    kernels::cuda::check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {base::Bytes{static_cast<std::int64_t>(total)}, base::Bytes{static_cast<std::int64_t>(free)}, properties.name};
  }

  std::unique_ptr<Executor> make_executor(const plan::Plan& plan, const ExecutorOptions& options) const override {
    return make_cuda_executor(plan, options);
  }

  std::unique_ptr<SharedDevice> share(std::span<const plan::Plan* const> plans, std::int32_t rank) const override {
    return share_gpu(plans, rank);
  }
};

}  // namespace

}  // namespace plimsoll::executor

extern "C" __attribute__((visibility("default"))) const plimsoll::executor::Backend* plimsoll_cuda_backend() {
  static const plimsoll::executor::CudaBackend backend;
  return &backend;
}
