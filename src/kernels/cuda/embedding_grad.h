// The gradient of an embedding; embedding.cu has its row of the table.
#pragma once

#include <cstdint>

#include "kernels/cuda/kernel.h"

namespace plimsoll::kernels::cuda {

std::int64_t embed_grad_workspace(const ops::KernelQuery& query);
void embed_grad(const Call& call, cudaStream_t stream);

}  // namespace plimsoll::kernels::cuda
