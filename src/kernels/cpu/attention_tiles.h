// What attention does to one tile of queries and one tile of keys, compiled for each instruction set.
//
// The words: a *query tile* holds up to kTileQueries queries of one head, a *key tile* up to kTileKeys keys with their
// values. A *grid* (keys, kTileQueries) f32 holds one number for each key and query: scores, probabilities or their
// gradients. *Rows* are keys, values, queries or gradients of outputs, one after the other, as f32.
//
// The grid has a row for each key, so that a vector holds one key's number for many queries: the softmax then needs no
// sum across a vector, and all products read their operands as they lie:
//   scores  grid (j, i) = rows_j . queries_i      broadcasts rows, reads the transposed queries
//   queries rows_i += grid(:, i) x rows           broadcasts the grid, reads rows
//   keys    rows_j += grid(j, :) x rows           broadcasts the grid, reads rows
// Only the query tile is transposed, once for all keys it meets.
//
// Queries are padded to kPad (zero rows), keys to kPad for loads; padding never reaches a result. No function here
// splits work or depends on the number of threads, so a tile's numbers are the same whoever computes them.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/random.h"

namespace plimsoll::kernels::cpu::attention {

inline constexpr int kTileQueries = 64;
inline constexpr int kTileKeys = 64;
inline constexpr int kPad = 16;       // a multiple of every vector length
inline constexpr int kFar = 1 << 24;  // further than any two places in a tile
inline constexpr double kLog2E = 1.44269504088896340736;
inline constexpr double kLn2 = 0.69314718055994530942;

constexpr std::int64_t padded(std::int64_t count) { return (count + kPad - 1) / kPad * kPad; }

// f32 rows in scratch.
struct Rows {
  float* data = nullptr;
  std::int64_t stride = 0;

  Rows from(std::int64_t row) const { return {data + row * stride, stride}; }
};

// Rows in a tensor, `stride` elements apart.
struct TensorRows {
  void* data = nullptr;
  base::DType dtype = base::DType::f32;
  std::int64_t stride = 0;
};

// Query i sees key j (both counted within their tiles) if low <= i - j < high: causality and the window.
struct Band {
  int low = -kFar;
  int high = kFar;

  bool covers(int queries, int keys) const { return low <= 1 - keys && queries - 1 < high; }
};

// How one query tile meets one key tile.
struct TilePair {
  int queries = 0;  // padded
  int keys = 0;
  Band band;
  // Ids of the queries and keys, nonnegative on no side alone; null where every pair within the band is visible.
  const std::int32_t* query_segments = nullptr;
  const std::int32_t* key_segments = nullptr;
  const std::int32_t* seen = nullptr;  // grid: -1 where a pattern lets the query see the key, else 0; null where it lets all
  const float* keep = nullptr;         // grid of dropout factors, null without dropout

  bool masked() const { return query_segments != nullptr || seen != nullptr || !band.covers(queries, keys); }
};

// The running softmax of a query tile, in powers of two.
struct SoftmaxState {
  float max[kTileQueries];
  float sum[kTileQueries];
  float rescale[kTileQueries];  // what the last tile multiplies earlier sums with
};

// Which words of the counter-based stream a grid takes (see Dropout in ops/dropout.h).
struct DropoutTile {
  base::RandomKey key{};
  std::uint32_t sample = 0;
  std::uint32_t step = 0;
  std::uint32_t last_dropped = 0;   // words above it are kept
  float factor = 1.0f;              // 1 / (1 - rate)
  std::uint64_t first_element = 0;  // of query 0 and key 0
  std::uint64_t query_stride = 0;   // elements from one query to the next
  std::uint64_t key_stride = 1;     // and from one key to the next
};

// Rows a grid of dropout factors needs: words come four at a time and need not start at a multiple of four.
inline constexpr int kKeepRows = kTileKeys + 4;

struct TileOps {
  // count rows of dim elements to f32; up to `padded_count` rows and padded(dim) columns are made zero.
  void (*load)(TensorRows src, int count, int padded_count, std::int64_t dim, Rows dst);
  // dst (dim, kTileQueries) = scale * src (queries, dim) transposed.
  void (*transpose)(Rows src, int queries, std::int64_t dim, float scale, float* dst);
  // count rows of dim elements, each times scale and, if given, its row_scale.
  void (*store)(Rows src, int count, std::int64_t dim, float scale, const float* row_scale, TensorRows dst);
  // dst[i] = a_i . b_i
  void (*row_dots)(Rows a, Rows b, int count, std::int64_t dim, float* dst);

  // The three products. What the band hides is left out: of scores it stays unwritten, grids must hold zeros there.
  void (*score_product)(const TilePair& pair, Rows rows, const float* transposed, std::int64_t dim, float* grid);
  void (*query_product)(const TilePair& pair, const float* grid, Rows rows, std::int64_t dim, Rows sum);
  void (*key_product)(const TilePair& pair, const float* grid, Rows rows, std::int64_t dim, Rows sum);

  // Scores (in powers of two) become probabilities over 2^max, dropped and rescaled; state moves on.
  void (*softmax)(const TilePair& pair, float* grid, SoftmaxState& state);
  // Each row of queries times its state.rescale.
  void (*rescale)(const SoftmaxState& state, int queries, std::int64_t dim, Rows sum);
  // scores -> probabilities dropped and rescaled; gradients of those -> gradients of scores.
  void (*softmax_grad)(const TilePair& pair, const float* lse2, const float* delta, float* scores, float* gradients);
  // keep (kKeepRows, kTileQueries): factor or zero.
  void (*draw_keep)(const DropoutTile& dropout, int queries, int keys, float* keep);
};

// For the best instruction set of this machine.
const TileOps& tile_ops();

}  // namespace plimsoll::kernels::cpu::attention
