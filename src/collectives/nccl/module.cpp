// What the module shows to whoever loads it.
#include "collectives/nccl/join_here.h"

extern "C" __attribute__((visibility("default"))) plimsoll::collectives::Transport* plimsoll_nccl_join(
    const plimsoll::collectives::Launch& launch, const plimsoll::collectives::nccl::Options& options) {
  return plimsoll::collectives::nccl::join_here(launch, options).release();
}
