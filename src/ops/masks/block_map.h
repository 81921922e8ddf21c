// Which tiles of keys the tiles of queries look at, as lists, and how many pairs of a query and a key are visible. Kernels that work tile
// by tile ask a mask about each tile as they come to it; prices count with these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/masks/mask.h"

namespace plimsoll::ops {

struct BlockShape {
  std::int64_t queries = 64;
  std::int64_t keys = 64;
};

struct BlockMap {
  struct Block {
    std::int64_t keys = 0;  // which tile of keys
    bool full = false;      // every query of the tile sees every key
    bool operator==(const Block&) const = default;
  };

  std::vector<std::size_t> begins;  // of each tile of queries, where its list begins; and where the last one ends
  std::vector<Block> blocks;        // in the order of the keys
  double pairs = 0.0;               // of queries and keys in the listed tiles, visible or not

  std::size_t rows() const { return begins.size() - 1; }
  std::span<const Block> row(std::size_t tile) const { return std::span(blocks).subspan(begins[tile], begins[tile + 1] - begins[tile]); }
};

BlockMap block_map(const Mask& mask, const MaskTile& whole, const BlockShape& shape);

// Pairs of a query and a key that are visible. A band is counted by a formula, a pattern by quarters of quarters until one is of one kind.
double visible_pairs(const Mask& mask, const MaskTile& whole);

}  // namespace plimsoll::ops
