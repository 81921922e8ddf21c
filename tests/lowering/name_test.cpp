// Names that share a text are the names that they read as.
#include "plan/name.h"

#include <gtest/gtest.h>

#include <map>

namespace plimsoll::plan {
namespace {

TEST(Name, IsItsText) {
  const Name base("blocks.3.forward");
  const Name one = base.numbered(17);
  EXPECT_EQ(base, "blocks.3.forward");
  EXPECT_EQ(one, "blocks.3.forward@17");
  EXPECT_EQ(one, Name(std::string("blocks.3.forward@17")));  // as a plan's file gives it
  EXPECT_FALSE(one == base.numbered(18));
  EXPECT_FALSE(one == base);
  EXPECT_EQ(one.numbered(2), "blocks.3.forward@17@2");
  EXPECT_TRUE(one.starts_with("blocks.3"));
  EXPECT_TRUE(one.ends_with("@17"));
  EXPECT_EQ(fmt::format("{} {:>5}", one, Name("x")), "blocks.3.forward@17     x");
  EXPECT_EQ("of " + one + "!", "of blocks.3.forward@17!");
}

TEST(Name, CanBeEmpty) {
  EXPECT_TRUE(Name().empty());
  EXPECT_TRUE(Name("").empty());
  EXPECT_EQ(Name(), Name(""));
  EXPECT_EQ(Name().text(), "");
}

TEST(Name, OutlivesWhatItWasCopiedFrom) {
  Name kept;
  {
    Name base("activation");
    kept = base.numbered(3);
    Name moved = std::move(base);
    kept = kept;
    base = moved;
    EXPECT_EQ(base, "activation");
  }
  EXPECT_EQ(kept, "activation@3");
  std::map<std::string, int> by_name;
  by_name[kept] = 1;
  EXPECT_TRUE(by_name.contains("activation@3"));
}

}  // namespace
}  // namespace plimsoll::plan
