// What a build without MPI says. Built from the source file that takes the transport's place there.
#include <gtest/gtest.h>

#include "base/error.h"
#include "collectives/mpi/mpi.h"

namespace plimsoll::collectives {
namespace {

TEST(MpiMissing, IsAReasonAndARefusal) {
  ASSERT_TRUE(mpi::why_missing());
  EXPECT_NE(mpi::why_missing()->find("built without MPI"), std::string::npos);
  try {
    mpi::join();
    FAIL() << "joined";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_EQ(error.what(), *mpi::why_missing());
  }
}

}  // namespace
}  // namespace plimsoll::collectives
