// Operators on a device: never faster than its rates, more work never costs less, and flops as published tables count them.
#include <gtest/gtest.h>

#include "cluster/presets.h"
#include "cost/matrix.h"
#include "cost/operator.h"

namespace plimsoll::cost {
namespace {

using base::DType;
using base::Shape;
using base::TensorType;

TensorType bf16(Shape shape) { return {DType::bf16, shape}; }

double linear_seconds(const cluster::Device& device, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  const std::vector<TensorType> inputs{bf16({rows, depth}), bf16({columns, depth})};
  const std::vector<TensorType> outputs{bf16({rows, columns})};
  return operator_seconds(device, ops::Linear{}, inputs, outputs);
}

TEST(Operator, IsNeverFasterThanTheDevice) {
  for (std::string_view name : cluster::preset_names()) {
    const cluster::Device device = cluster::preset(name).device;
    for (std::int64_t rows : {1, 100, 1024, 32768}) {
      for (std::int64_t columns : {64, 1000, 12288}) {
        for (std::int64_t depth : {64, 2304, 25600}) {
          const double flops = 2.0 * static_cast<double>(rows * columns) * static_cast<double>(depth);
          EXPECT_GE(linear_seconds(device, rows, columns, depth), flops / matrix_rate(device, DType::bf16));
          const double bytes = 2.0 * static_cast<double>(rows * depth + columns * depth + rows * columns);
          EXPECT_GE(linear_seconds(device, rows, columns, depth), bytes / device.bandwidth);
        }
      }
    }
  }
}

TEST(Operator, LargeProductsReachTheShareOfTheRate) {
  const cluster::Device device = cluster::preset("hgx-h200").device;
  const double tflops = 2.0 * 8192.0 * 8192 * 8192 / linear_seconds(device, 8192, 8192, 8192) / 1e12;
  EXPECT_GT(tflops, 650);  // what products of training steps reached on one
  EXPECT_LT(tflops, 796);  // and this product alone
  EXPECT_LT(2.0 * 128.0 * 128 * 128 / linear_seconds(device, 128, 128, 128) / 1e12, 20);
}

// As in a step of products on an H200: 1,300 TFLOP/s.
TEST(Operator, EightBitProductsRunAtTheirOwnRate) {
  const cluster::Device device = cluster::preset("hgx-h200").device;
  const auto eight = [](Shape shape) { return TensorType{DType::f8e4m3, shape}; };
  const std::vector<TensorType> inputs{eight({16384, 6400}), eight({6400, 6400}), {DType::f32, {1}}, {DType::f32, {1}}};
  const std::vector<TensorType> outputs{bf16({16384, 6400})};
  const double tflops = 2.0 * 16384 * 6400 * 6400 / operator_seconds(device, ops::ScaledLinear{}, inputs, outputs) / 1e12;
  EXPECT_NEAR(tflops, 1300, 100);
}

TEST(Operator, NarrowProductsAreLessEfficient) {
  const cluster::Device device = cluster::preset("dgx-a100-80g").device;
  const auto efficiency = [&](std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return matrix_efficiency(device, {.rows = rows, .columns = columns, .depth = depth, .dtype = DType::bf16});
  };
  EXPECT_GT(efficiency(8192, 8192, 8192), efficiency(2048, 2048, 8192));
  EXPECT_GT(efficiency(8192, 8192, 8192), efficiency(8192, 8192, 128));
  EXPECT_LE(efficiency(1 << 20, 1 << 15, 1 << 15), device.matrix_share);
}

// Per layer and micro-batch 24 b s h^2 + 4 b s^2 h forward, and twice that backward.
TEST(Flops, AreThoseOfTheClosedForm) {
  const std::int64_t b = 2;
  const std::int64_t s = 128;
  const std::int64_t heads = 4;
  const std::int64_t h = 256;
  const ops::Attention attention{.heads = {.query = heads, .kv = heads, .dim = h / heads}};
  const TensorType packed = bf16({b, s, 3 * h});
  const TensorType out = bf16({b, s, h});
  const TensorType lse{DType::f32, {b, heads, s}};
  const double scores = static_cast<double>(b * heads * s * s);
  const double expected = 4.0 * scores * static_cast<double>(h / heads);
  EXPECT_EQ(counted_flops(attention, std::vector{packed}, std::vector{out, lse}), expected);
  EXPECT_EQ(counted_flops(ops::AttentionGrad{attention}, std::vector{out, packed, out, lse}, std::vector{packed}), 2.0 * expected);
  const std::vector<TensorType> linear{bf16({b, s, h}), bf16({3 * h, h})};
  EXPECT_EQ(counted_flops(ops::Linear{}, linear, std::vector{packed}), 6.0 * static_cast<double>(b * s * h * h));
  // Products of 8-bit operands count as those of others, and run at their own rate.
  const std::vector<TensorType> scaled{{DType::f8e4m3, {b, s, h}}, {DType::f8e4m3, {3 * h, h}}, {DType::f32, {1}}, {DType::f32, {1}}};
  EXPECT_EQ(counted_flops(ops::ScaledLinear{}, scaled, std::vector{packed}), 6.0 * static_cast<double>(b * s * h * h));
  EXPECT_EQ(counted_flops(ops::Add{}, std::vector{out, out}, std::vector{out}), 0.0);
}

}  // namespace
}  // namespace plimsoll::cost
