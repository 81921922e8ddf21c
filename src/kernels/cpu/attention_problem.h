// One attention call, seen by the loops over tiles: where heads lie, who sees whom, which words of the random stream a
// tile takes, and how scratch is cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/kernel.h"
#include "ops/attention.h"

namespace plimsoll::kernels::cpu::attention {

// Positions [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  int size() const { return static_cast<int>(end - begin); }
};

inline std::int64_t tiles_of(std::int64_t length, int tile) { return (length + tile - 1) / tile; }
inline Range tile_range(std::int64_t index, int tile, std::int64_t length) {
  const std::int64_t begin = index * tile;
  return {begin, begin + tile < length ? begin + tile : length};
}

// The segment ids of a tile. A hidden position (id < 0) gets an id that the other side never has.
struct SegmentTile {
  std::int32_t ids[kTileKeys > kTileQueries ? kTileKeys : kTileQueries];
  std::int32_t least = 0;  // of the ids >= 0; least > most when there is none
  std::int32_t most = 0;
  bool uniform = false;  // all ids equal and >= 0
};

// Scratch for what hides or drops single pairs; null where nothing does.
struct MaskGrids {
  float* keep = nullptr;         // (kKeepRows, kTileQueries)
  std::int32_t* seen = nullptr;  // (kTileKeys, kTileQueries)
};

class Problem {
 public:
  // The forward's operands start with packed, the gradient's with dout, packed, out, lse.
  Problem(const ops::Attention& attention, const Call& call);
  Problem(const ops::AttentionGrad& grad, const Call& call);

  const ops::Heads& heads() const { return attention_.heads; }
  std::int64_t batch() const { return batch_; }
  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }
  float scale() const { return scale_; }
  bool drops() const { return attention_.rate > 0.0; }

  // Rows of one head from row `first`, of tensors that lie like queries, keys and values, or like packed.
  TensorRows query_rows(std::span<const Tensor> tensors, std::int64_t sample, std::int64_t head, std::int64_t first) const;
  TensorRows key_rows(std::span<const Tensor> tensors, std::int64_t sample, std::int64_t kv_head, std::int64_t first) const;
  TensorRows value_rows(std::span<const Tensor> tensors, std::int64_t sample, std::int64_t kv_head, std::int64_t first) const;
  // Rows of one head of a tensor (B, T, H*D).
  TensorRows output_rows(const Tensor& out, std::int64_t sample, std::int64_t head, std::int64_t first) const;

  // The key tiles that some query of the range may see, and the other way round.
  Range key_tiles_of(Range queries) const;
  Range query_tiles_of(Range keys) const;

  // Ids as queries and as keys; nothing to do when not segmented.
  void read_segments(std::int64_t sample, Range rows, bool as_keys, SegmentTile& tile) const;

  struct PairPlace {
    std::int64_t sample, head;
    Range queries, keys;
  };
  // Nullopt: no query of the tile sees a key of the other. What dropout and a pattern need of the grids is filled.
  std::optional<TilePair> meet(const PairPlace& place, const SegmentTile& query_ids, const SegmentTile& key_ids,
                               const MaskGrids& grids) const;

 private:
  // The first of the tensors, and of what stands behind all of them, among the operands.
  Problem(const ops::Attention& attention, const Call& call, std::size_t tensor, std::size_t masks);

  TensorRows head_rows(const Tensor& tensor, std::int64_t row, std::int64_t offset) const;
  // What is dropped of a pair of tiles.
  void draw_keep(const PairPlace& place, const TilePair& pair, float* keep) const;

  const ops::Attention& attention_;
  ops::Band band_;  // by rows of the operands
  std::int64_t batch_ = 0;
  std::int64_t queries_ = 0;
  std::int64_t keys_ = 0;
  float scale_ = 1.0f;
  const std::int32_t* query_segments_ = nullptr;  // (B, queries); null: all one
  const std::int32_t* key_segments_ = nullptr;    // (B, keys)
  const std::int32_t* samples_ = nullptr;         // (B)
  DropoutTile dropout_;                           // what all tiles share
};

// Cuts scratch into pieces; without memory it only counts, so that a layout is written once.
class Cutter {
 public:
  explicit Cutter(std::byte* memory) : memory_(memory) {}
  template <typename T>
  T* take(std::int64_t count) {
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    return piece;
  }
  Rows rows(std::int64_t count, std::int64_t dim);
  MaskGrids mask_grids(const ops::Attention& attention);
  std::int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::int64_t used_ = 0;
};

std::int64_t forward_workspace(const ops::Attention& attention, int threads);
void run_forward(const ops::Attention& attention, const Call& call);

std::int64_t backward_workspace(const ops::Attention& attention, std::int64_t batch, std::int64_t keys, int threads);
void run_backward(const ops::AttentionGrad& grad, const Call& call);

}  // namespace plimsoll::kernels::cpu::attention
