// For suites that call kernels directly, not by the kernel table: the instruction set is settled (PLIMSOLL_ISA) before the first one runs.
#include <gtest/gtest.h>

#include "kernels/cpu/simd_targets.h"

#include <hwy/targets.h>

#include "base/processor.h"
#include "kernels/cpu/isa.h"

namespace {

namespace base = plimsoll::base;

class SettledIsa : public testing::Environment {
 public:
  void SetUp() override { plimsoll::kernels::cpu::settle_isa(); }
};

[[maybe_unused]] const testing::Environment* const settled = testing::AddGlobalTestEnvironment(new SettledIsa);

TEST(SettledIsa, HighwayKeepsToIt) {
  const base::Isa isa = base::processor().isa;
  if (isa == base::Isa::other) GTEST_SKIP() << "Highway alone chooses on this processor";
  EXPECT_EQ((hwy::SupportedTargets() & HWY_AVX3) != 0, isa >= base::Isa::avx512);
  EXPECT_NE(hwy::SupportedTargets() & HWY_AVX2, 0);
}

}  // namespace
