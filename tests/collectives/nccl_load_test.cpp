// What a machine without a GPU (or a build without NCCL) says when it is asked for NCCL.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "collectives/nccl/nccl.h"

namespace plimsoll::collectives {
namespace {

TEST(NcclLoad, RefusesWithAReason) {
  if (std::filesystem::exists("/dev/nvidia0")) GTEST_SKIP() << "there is a GPU here";
  try {
    nccl::join({}, {});
    FAIL() << "joined without a GPU";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    const std::string text = error.what();
    if (const auto reason = nccl::why_missing()) {
      EXPECT_EQ(text, *reason);
    } else {
      EXPECT_NE(text.find("no GPU can be used"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace plimsoll::collectives
