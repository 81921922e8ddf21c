// Runs a test on each instruction set that was compiled and that this machine has.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/cpu/simd_targets.h"

#include <hwy/highway.h>

namespace plimsoll::kernels::cpu {

template <typename Body>
void on_every_target(Body body) {
  const std::int64_t available = hwy::SupportedTargets();
  for (std::int64_t target = 1; target > 0; target <<= 1) {
    if ((available & HWY_TARGETS & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace plimsoll::kernels::cpu
