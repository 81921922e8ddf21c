#include "cost/matrix.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace plimsoll::cost {

namespace {

struct Tile {
  std::int64_t rows;
  std::int64_t columns;
  double speed;  // beside the largest, with operands enough
};

constexpr std::array<Tile, 5> kTiles{{{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.94}, {128, 64, 0.8}, {64, 64, 0.62}}};

// Elements of depth in which a tile's pipeline fills and empties.
constexpr double kRamp = 96.0;

constexpr std::array<std::int64_t, 4> kCuts{1, 2, 4, 8};

double ceil_div(std::int64_t a, std::int64_t b) {
  const std::int64_t whole = (a + b - 1) / b;
  return static_cast<double>(whole);
}

}  // namespace

double matrix_efficiency(const cluster::Device& device, const Product& product) {
  const auto units = static_cast<double>(device.units);
  double best = 0.0;
  for (const Tile& tile : kTiles) {
    const double tiles = ceil_div(product.rows, tile.rows) * ceil_div(product.columns, tile.columns) * static_cast<double>(product.batch);
    const double area = static_cast<double>(tile.rows * tile.columns);
    const double useful = static_cast<double>(product.rows * product.columns) * static_cast<double>(product.batch);
    for (const std::int64_t cuts : kCuts) {
      const double depth = static_cast<double>(product.depth) / static_cast<double>(cuts);
      if (cuts > 1 && (tiles >= units || depth < 2.0 * kRamp)) break;
      const double rounds = std::ceil(tiles * static_cast<double>(cuts) / units) / static_cast<double>(cuts);
      const double filled = useful / (rounds * units * area);
      best = std::max(best, tile.speed * filled * depth / (depth + kRamp));
    }
  }
  return std::min(device.matrix_share * std::min(best, 1.0), device.sustained_share);
}

double matrix_rate(const cluster::Device& device, cluster::DType dtype) {
  const auto exact = device.rates.find(dtype);
  if (exact != device.rates.end()) return exact->second;
  const auto plain = device.rates.find(cluster::DType::f32);
  return plain != device.rates.end() ? plain->second : device.rates.begin()->second;
}

double matrix_seconds(const cluster::Device& device, const Product& product) {
  return product.flops() / (matrix_rate(device, product.dtype) * matrix_efficiency(device, product));
}

}  // namespace plimsoll::cost
