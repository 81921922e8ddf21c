#include "base/id.h"

#include <string>
#include <type_traits>
#include <unordered_set>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

using AppleId = Id<struct AppleTag>;
using PearId = Id<struct PearTag>;
static_assert(!std::is_convertible_v<AppleId, PearId>);
static_assert(!std::is_convertible_v<int, AppleId>);

TEST(Id, IsNoneUntilGiven) {
  EXPECT_FALSE(AppleId{}.valid());
  EXPECT_TRUE(AppleId{0}.valid());
  EXPECT_LT(AppleId{1}, AppleId{2});
  EXPECT_EQ((std::unordered_set<AppleId>{AppleId{1}, AppleId{1}, AppleId{2}}.size()), 2u);
}

TEST(IdVector, HandsOutIdsInOrder) {
  IdVector<AppleId, std::string> apples;
  EXPECT_TRUE(apples.empty());
  EXPECT_EQ(apples.next_id(), AppleId{0});
  const AppleId first = apples.add("russet");
  const AppleId second = apples.add("pippin");
  EXPECT_EQ(apples[first], "russet");
  apples[second] = "gala";
  EXPECT_EQ(apples.size(), 2u);
  EXPECT_EQ(apples.items(), (std::vector<std::string>{"russet", "gala"}));
  apples.resize(3, "spare");
  EXPECT_EQ(apples[AppleId{2}], "spare");
}

TEST(IdVectorDeathTest, StopsOnAnIdItNeverGave) {
  const IdVector<AppleId, int> apples(2, 7);
  EXPECT_DEATH(apples[AppleId{2}], "id 2 of 2");
  EXPECT_DEATH(apples[AppleId{}], "of 2");
}

}  // namespace
}  // namespace plimsoll::base
