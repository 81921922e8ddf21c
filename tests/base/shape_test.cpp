#include "base/shape.h"

#include <gtest/gtest.h>

namespace plimsoll::base {
namespace {

TEST(Shape, CountsElementsAndRows) {
  const Shape shape{4, 256, 768};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.elements(), 4 * 256 * 768);
  EXPECT_EQ(shape.rows(), 4 * 256);
  EXPECT_EQ(shape[0], 4);
  EXPECT_EQ(shape[-1], 768);
  EXPECT_EQ(shape[-3], 4);
}

TEST(Shape, ScalarAndEmpty) {
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ(Shape{}.rows(), 1);
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ((Shape{3, 0, 2}).elements(), 0);
  EXPECT_EQ((Shape{7}).rows(), 1);
}

TEST(Shape, ComparesByRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 0}));
  Shape shape{2, 3};
  shape.set(-1, 5);
  EXPECT_EQ(shape, (Shape{2, 5}));
}

TEST(Shape, PrintsAsWritten) {
  EXPECT_EQ(to_string(Shape{4, 256, 768}), "[4, 256, 768]");
  EXPECT_EQ(to_string(TensorType{DType::bf16, {4, 256, 768}}), "bf16[4, 256, 768]");
}

TEST(TensorType, CountsBytes) {
  EXPECT_EQ((TensorType{DType::f32, {3, 5}}).bytes(), 60);
  EXPECT_EQ((TensorType{DType::f16, {3, 5}}).bytes(), 30);
  EXPECT_EQ((TensorType{DType::i64, {}}).bytes(), 8);
  // Past 2^32 elements: extents are 64-bit all the way.
  EXPECT_EQ((TensorType{DType::f32, {1 << 20, 1 << 14}}).bytes(), std::int64_t{1} << 36);
}

TEST(ShapeDeathTest, StopsOnWhatIsNotAShape) {
  EXPECT_DEATH((Shape{1, 2})[2], "dim 2 of \\[1, 2\\]");
  EXPECT_DEATH((Shape{1, 2})[-3], "dim -3");
  EXPECT_DEATH((Shape{-1}), "extent -1 of dim 0");
  EXPECT_DEATH((Shape{1, 1, 1, 1, 1, 1, 1}), "7 dims; at most 6");
}

}  // namespace
}  // namespace plimsoll::base
