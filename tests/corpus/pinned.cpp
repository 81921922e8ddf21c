// Which kernels a plan has depends on the processor and, for GPUs, on whether there is one: the corpus is that of the least that Plimsoll
// runs on, whatever is here. This is said before anything asks.
#include <cstdlib>

#include <gtest/gtest.h>

namespace {

class Pinned : public testing::Environment {
 public:
  void SetUp() override {
    setenv("PLIMSOLL_ISA", "avx2", 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }
};

[[maybe_unused]] const testing::Environment* const pinned = testing::AddGlobalTestEnvironment(new Pinned);

}  // namespace
