#include "kernels/cuda/checks.h"

#include "base/error.h"

namespace plimsoll::kernels::cuda {

void fail_cuda(cudaError_t code, std::string_view what) {
  base::fail(base::ErrorKind::peer_lost, "CUDA: {}: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code));
}

void stop_on_element(base::DType dtype) { PLIMSOLL_CHECK(false, "a CUDA kernel on {}", base::name_of(dtype)); }

}  // namespace plimsoll::kernels::cuda
