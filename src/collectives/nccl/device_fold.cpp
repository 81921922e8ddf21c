#include "collectives/nccl/device_fold.h"

#include "collectives/nccl/checks.h"
#include "collectives/nccl/device_fold_kernel.h"

namespace plimsoll::collectives::nccl {

namespace {

FoldType type_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::f32: return FoldType::f32;
    case base::DType::bf16: return FoldType::bf16;
    case base::DType::f16: return FoldType::f16;
    case base::DType::i32: return FoldType::i32;
    case base::DType::i64: return FoldType::i64;
    default: return FoldType::u8;
  }
}

}  // namespace

void device_fold(const Fold& work, const std::byte** pointers, cudaStream_t stream) {
  PLIMSOLL_CHECK(work.in.size() <= kMostFolded, "a canonical sum over {} members", work.in.size());
  check(cudaMemcpyAsync(pointers, work.in.data(), work.in.size_bytes(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  const auto rule = work.reduction == Reduction::sum ? FoldRule::sum : work.reduction == Reduction::mean ? FoldRule::mean : FoldRule::max;
  check(launch_fold(type_of(work.dtype), rule, reinterpret_cast<const void* const*>(pointers), static_cast<int>(work.in.size()),
                    work.out.front(), work.count, 1.0f / static_cast<float>(work.members), stream),
        "fold");
}

}  // namespace plimsoll::collectives::nccl
