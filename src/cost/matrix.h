// How long a device takes for y (rows, columns) = a (rows, depth) b (depth, columns), with `batch` of them at once.
//
// The product is dealt out in tiles to the device's units. Three things keep it from the device's rate: the last round of tiles
// does not fill all units; a small tile reads more for each operation than a large one; and a tile's pipeline fills and empties
// once for each run along the depth, so short depths cost more. Kernels choose the best tile, and may cut the depth in pieces
// where there are fewer tiles than units; so does the price. Large products draw more power than a device may for long, whatever their
// shape: its clock falls, and there is a share of the rate that none exceeds in a step (`sustained_share`).
#pragma once

#include <cstdint>

#include "cluster/cluster.h"

namespace plimsoll::cost {

struct Product {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t depth = 1;
  std::int64_t batch = 1;
  cluster::DType dtype = cluster::DType::f32;

  double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth) * static_cast<double>(batch);
  }
};

// The share of the device's rate that its arithmetic reaches.
double matrix_efficiency(const cluster::Device& device, const Product& product);

// Arithmetic alone; memory is priced by who knows the operands.
double matrix_seconds(const cluster::Device& device, const Product& product);

// Operations a second in products of the type; where the device has no rate for it, that of f32, or the first there is.
double matrix_rate(const cluster::Device& device, cluster::DType dtype);

}  // namespace plimsoll::cost
