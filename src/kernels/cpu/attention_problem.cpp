#include "kernels/cpu/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu::attention {

Problem::Problem(const ops::Attention& attention, const Call& call, std::size_t packed_input) : attention_(attention) {
  const base::Shape& packed = call.inputs[packed_input].type.shape;
  batch_ = packed[0];
  length_ = packed[1];
  scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.heads.dim)));
  std::size_t next = packed_input == 0 ? 1 : 4;
  if (attention.segmented) segments_ = call.inputs[next++].as<const std::int32_t>();
  if (attention.rate > 0.0) {
    samples_ = call.inputs[next++].as<const std::int32_t>();
    const auto& scalars = *call.inputs[next].as<const ops::StepScalars>();
    dropout_.key = base::random_key(scalars.seed, attention.site);
    dropout_.step = scalars.step;
    // A word is kept if it is >= rate * 2^32.
    dropout_.last_dropped = static_cast<std::uint32_t>(std::ceil(attention.rate * 0x1p32) - 1.0);
    dropout_.factor = static_cast<float>(1.0 / (1.0 - attention.rate));
    dropout_.query_stride = static_cast<std::uint64_t>(length_);
  }
}

TensorRows Problem::head_rows(const Tensor& tensor, std::int64_t row, std::int64_t offset) const {
  const std::int64_t width = tensor.type.shape[-1];
  return {tensor.as<std::byte>() + (row * width + offset) * base::size_of(tensor.type.dtype), tensor.type.dtype, width};
}

TensorRows Problem::query_rows(const Tensor& packed, std::int64_t sample, std::int64_t head, std::int64_t first) const {
  return head_rows(packed, sample * length_ + first, heads().query_offset(head));
}

TensorRows Problem::key_rows(const Tensor& packed, std::int64_t sample, std::int64_t kv_head, std::int64_t first) const {
  return head_rows(packed, sample * length_ + first, heads().key_offset(kv_head));
}

TensorRows Problem::value_rows(const Tensor& packed, std::int64_t sample, std::int64_t kv_head, std::int64_t first) const {
  return head_rows(packed, sample * length_ + first, heads().value_offset(kv_head));
}

TensorRows Problem::output_rows(const Tensor& out, std::int64_t sample, std::int64_t head, std::int64_t first) const {
  return head_rows(out, sample * length_ + first, head * heads().dim);
}

Range Problem::key_tiles_of(Range queries) const {
  const std::int64_t begin = attention_.window > 0 ? std::max<std::int64_t>(0, queries.begin - attention_.window + 1) : 0;
  const std::int64_t end = attention_.causal ? queries.end : length_;
  return {begin / kTileKeys, tiles_of(end, kTileKeys)};
}

Range Problem::query_tiles_of(Range keys) const {
  const std::int64_t begin = attention_.causal ? keys.begin : 0;
  // No sum of the window, which may be as large as it likes.
  const bool bounded = attention_.window > 0 && attention_.window < length_ - (keys.end - 1);
  const std::int64_t end = bounded ? keys.end - 1 + attention_.window : length_;
  return {begin / kTileQueries, tiles_of(end, kTileQueries)};
}

void Problem::read_segments(std::int64_t sample, Range positions, bool as_keys, SegmentTile& tile) const {
  if (segments_ == nullptr) return;
  const std::int32_t* ids = segments_ + sample * length_ + positions.begin;
  const std::int32_t hidden = as_keys ? -2 : -1;
  bool any_hidden = false;
  tile.least = std::numeric_limits<std::int32_t>::max();
  tile.most = -1;
  for (int i = 0; i < positions.size(); ++i) {
    const bool shown = ids[i] >= 0;
    tile.ids[i] = shown ? ids[i] : hidden;
    tile.least = shown ? std::min(tile.least, ids[i]) : tile.least;
    tile.most = shown ? std::max(tile.most, ids[i]) : tile.most;
    any_hidden |= !shown;
  }
  std::fill(tile.ids + positions.size(), std::end(tile.ids), hidden);
  tile.uniform = !any_hidden && tile.least == tile.most;
}

std::optional<TilePair> Problem::meet(const PairPlace& place, const SegmentTile& query_ids, const SegmentTile& key_ids, float* keep) const {
  TilePair pair;
  pair.queries = static_cast<int>(padded(place.queries.size()));
  pair.keys = place.keys.size();
  // i - j >= 0 and i - j < window, with i and j counted from the tiles' beginnings.
  const std::int64_t shift = place.keys.begin - place.queries.begin;
  if (attention_.causal) pair.band.low = static_cast<int>(std::clamp<std::int64_t>(shift, -kFar, kFar));
  if (attention_.window > 0 && attention_.window < length_) {
    pair.band.high = static_cast<int>(std::clamp<std::int64_t>(shift + attention_.window, -kFar, kFar));
  }
  if (segments_ != nullptr) {
    if (query_ids.least > key_ids.most || key_ids.least > query_ids.most) return std::nullopt;
    const bool all_same = query_ids.uniform && key_ids.uniform;  // and so equal, as the ranges meet
    if (!all_same) {
      pair.query_segments = query_ids.ids;
      pair.key_segments = key_ids.ids;
    }
  }
  if (drops()) {
    DropoutTile tile = dropout_;
    tile.sample = static_cast<std::uint32_t>(samples_[place.sample]);
    const auto row = static_cast<std::uint64_t>((attention_.first_head + place.head) * length_ + place.queries.begin);
    tile.first_element = row * static_cast<std::uint64_t>(length_) + static_cast<std::uint64_t>(place.keys.begin);
    tile_ops().draw_keep(tile, pair.queries, pair.keys, keep);
    pair.keep = keep;
  }
  return pair;
}

Rows Cutter::rows(std::int64_t count, std::int64_t dim) {
  // Wide rows an odd number of cache lines apart, so that a column of them does not fall on few cache sets.
  std::int64_t stride = padded(dim);
  if (stride > 4 * kPad && stride / kPad % 2 == 0) stride += kPad;
  return {take<float>(count * stride), stride};
}

}  // namespace plimsoll::kernels::cpu::attention
