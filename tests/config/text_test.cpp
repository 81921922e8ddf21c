#include "base/text.h"

#include <array>

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("setps", "steps"), 1u);  // a swap of neighbours is one slip
  EXPECT_EQ(edit_distance("optimiser", "optimizer"), 1u);
}

TEST(Text, NearestName) {
  const std::array<std::string_view, 4> names{"optimizer", "steps", "seed", "out"};
  EXPECT_EQ(nearest_name("optimiser", names), "optimizer");
  EXPECT_EQ(nearest_name("Steps", names), "steps");
  EXPECT_EQ(nearest_name("sed", names), "seed");
  EXPECT_EQ(nearest_name("banana", names), "");
  EXPECT_EQ(nearest_name(std::string(10000, 'x'), names), "");
}

}  // namespace
}  // namespace plimsoll::base
