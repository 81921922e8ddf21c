// Every call of CUDA and NCCL goes through one of these.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include "base/error.h"

namespace plimsoll::collectives::nccl {

inline void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) base::fail(base::ErrorKind::peer_lost, "{}: {}", what, cudaGetErrorString(code));
}

// NCCL answers "in progress" where a communicator does not block.
inline void check(ncclResult_t code, const char* what) {
  if (code != ncclSuccess && code != ncclInProgress) base::fail(base::ErrorKind::peer_lost, "{}: {}", what, ncclGetErrorString(code));
}

}  // namespace plimsoll::collectives::nccl
