#include "kernels/cpu/isa.h"

#include "kernels/cpu/simd_targets.h"

#include <hwy/targets.h>

#include "base/processor.h"

namespace plimsoll::kernels::cpu {

namespace {

void settle_highway(base::Isa isa) {
  if (isa >= base::Isa::sse && isa < base::Isa::avx512) hwy::DisableTargets(HWY_AVX3 | HWY_AVX3_DL);
}

bool settle() {
  const base::Processor& processor = base::processor();
  base::require_supported(processor);
  settle_highway(processor.isa);
  settle_onednn_isa();
  return true;
}

}  // namespace

void settle_isa() { [[maybe_unused]] static const bool once = settle(); }

}  // namespace plimsoll::kernels::cpu
