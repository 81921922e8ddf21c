#include "kernels/cpu/attention_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/step_scalars.h"

namespace plimsoll::kernels::cpu::attention {

Problem::Problem(const ops::Attention& attention, const Call& call) : Problem(attention, call, 0, attention.tensors()) {}

Problem::Problem(const ops::AttentionGrad& grad, const Call& call) : Problem(grad.forward, call, 1, grad.masks()) {}

Problem::Problem(const ops::Attention& attention, const Call& call, std::size_t tensor, std::size_t masks) : attention_(attention) {
  const base::Shape& queries = call.inputs[tensor].type.shape;
  batch_ = queries[0];
  queries_ = queries[1];
  keys_ = call.inputs[tensor + attention.key_operand()].type.shape[1];
  band_ = attention.band_of_rows();
  if (band_.high >= queries_) band_.high = ops::kEndless;  // no query is so far behind a key
  scale_ = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.heads.dim)));
  std::size_t next = masks;
  if (attention.segmented) query_segments_ = key_segments_ = call.inputs[next++].as<const std::int32_t>();
  if (attention.segmented && attention.separate) key_segments_ = call.inputs[next++].as<const std::int32_t>();
  if (attention.rate > 0.0) {
    samples_ = call.inputs[next++].as<const std::int32_t>();
    const auto& scalars = *call.inputs[next].as<const ops::StepScalars>();
    dropout_.key = base::random_key(scalars.seed, attention.site);
    dropout_.step = scalars.step;
    // A word is kept if it is >= rate * 2^32.
    dropout_.last_dropped = static_cast<std::uint32_t>(std::ceil(attention.rate * 0x1p32) - 1.0);
    dropout_.factor = static_cast<float>(1.0 / (1.0 - attention.rate));
    dropout_.query_stride = static_cast<std::uint64_t>((attention.separate ? attention.length : queries_) * attention.stride);
    dropout_.key_stride = static_cast<std::uint64_t>(attention.stride);
  }
}

TensorRows Problem::head_rows(const Tensor& tensor, std::int64_t row, std::int64_t offset) const {
  const std::int64_t width = tensor.type.shape[-1];
  return {tensor.as<std::byte>() + (row * width + offset) * base::size_of(tensor.type.dtype), tensor.type.dtype, width};
}

TensorRows Problem::query_rows(std::span<const Tensor> tensors, std::int64_t sample, std::int64_t head, std::int64_t first) const {
  return head_rows(tensors[0], sample * queries_ + first, attention_.separate ? head * heads().dim : heads().query_offset(head));
}

TensorRows Problem::key_rows(std::span<const Tensor> tensors, std::int64_t sample, std::int64_t kv_head, std::int64_t first) const {
  return head_rows(tensors[attention_.key_operand()], sample * keys_ + first,
                   attention_.separate ? kv_head * heads().dim : heads().key_offset(kv_head));
}

TensorRows Problem::value_rows(std::span<const Tensor> tensors, std::int64_t sample, std::int64_t kv_head, std::int64_t first) const {
  return head_rows(tensors[attention_.value_operand()], sample * keys_ + first,
                   attention_.separate ? kv_head * heads().dim : heads().value_offset(kv_head));
}

TensorRows Problem::output_rows(const Tensor& out, std::int64_t sample, std::int64_t head, std::int64_t first) const {
  return head_rows(out, sample * queries_ + first, head * heads().dim);
}

Range Problem::key_tiles_of(Range queries) const {
  const std::int64_t begin = std::clamp<std::int64_t>(queries.begin - band_.high + 1, 0, keys_);
  const std::int64_t end = std::clamp<std::int64_t>(queries.end - band_.low, 0, keys_);
  return begin < end ? Range{begin / kTileKeys, tiles_of(end, kTileKeys)} : Range{};
}

Range Problem::query_tiles_of(Range keys) const {
  const std::int64_t begin = std::clamp<std::int64_t>(keys.begin + band_.low, 0, queries_);
  const std::int64_t end = std::clamp<std::int64_t>(keys.end - 1 + band_.high, 0, queries_);
  return begin < end ? Range{begin / kTileQueries, tiles_of(end, kTileQueries)} : Range{};
}

void Problem::read_segments(std::int64_t sample, Range rows, bool as_keys, SegmentTile& tile) const {
  if (query_segments_ == nullptr) return;
  const std::int32_t* ids = (as_keys ? key_segments_ + sample * keys_ : query_segments_ + sample * queries_) + rows.begin;
  const std::int32_t hidden = as_keys ? -2 : -1;
  bool any_hidden = false;
  tile.least = std::numeric_limits<std::int32_t>::max();
  tile.most = -1;
  for (int i = 0; i < rows.size(); ++i) {
    const bool shown = ids[i] >= 0;
    tile.ids[i] = shown ? ids[i] : hidden;
    tile.least = shown ? std::min(tile.least, ids[i]) : tile.least;
    tile.most = shown ? std::max(tile.most, ids[i]) : tile.most;
    any_hidden |= !shown;
  }
  std::fill(tile.ids + rows.size(), std::end(tile.ids), hidden);
  tile.uniform = !any_hidden && tile.least == tile.most;
}

std::optional<TilePair> Problem::meet(const PairPlace& place, const SegmentTile& query_ids, const SegmentTile& key_ids,
                                      const MaskGrids& grids) const {
  TilePair pair;
  pair.queries = static_cast<int>(padded(place.queries.size()));
  pair.keys = place.keys.size();
  // The band with queries and keys counted from the tiles' beginnings.
  const std::int64_t shift = place.keys.begin - place.queries.begin;
  pair.band.low = static_cast<int>(std::clamp<std::int64_t>(band_.low + shift, -kFar, kFar));
  pair.band.high = static_cast<int>(std::clamp<std::int64_t>(band_.high + shift, -kFar, kFar));
  if (query_segments_ != nullptr) {
    if (query_ids.least > key_ids.most || key_ids.least > query_ids.most) return std::nullopt;
    const bool all_same = query_ids.uniform && key_ids.uniform;  // and so equal, as the ranges meet
    if (!all_same) {
      pair.query_segments = query_ids.ids;
      pair.key_segments = key_ids.ids;
    }
  }
  if (const ops::MaskRule* rule = attention_.pattern.rule; rule != nullptr) {
    const ops::MaskTile tile{attention_.queries(queries_).part(place.queries.begin, place.queries.size()),
                             attention_.keys(keys_).part(place.keys.begin, place.keys.size()), attention_.first_head + place.head};
    const ops::Sight sight = rule->sight(attention_.pattern.numbers, tile);
    if (sight == ops::Sight::none) return std::nullopt;
    if (sight == ops::Sight::some) {
      rule->fill(attention_.pattern.numbers, tile, kTileQueries, grids.seen);
      pair.seen = grids.seen;
    }
  }
  if (drops()) draw_keep(place, pair, grids.keep);
  if (drops()) pair.keep = grids.keep;
  return pair;
}

void Problem::draw_keep(const PairPlace& place, const TilePair& pair, float* keep) const {
  DropoutTile tile = dropout_;
  tile.sample = static_cast<std::uint32_t>(samples_[place.sample]);
  const std::int64_t length = attention_.separate ? attention_.length : queries_;
  const std::int64_t query = attention_.queries(queries_).at(place.queries.begin);
  const std::int64_t key = attention_.keys(keys_).at(place.keys.begin);
  const auto row = static_cast<std::uint64_t>((attention_.first_head + place.head) * length + query);
  tile.first_element = row * static_cast<std::uint64_t>(length) + static_cast<std::uint64_t>(key);
  tile_ops().draw_keep(tile, pair.queries, pair.keys, keep);
}

MaskGrids Cutter::mask_grids(const ops::Attention& attention) {
  MaskGrids grids;
  grids.keep = take<float>(attention.rate > 0.0 ? kKeepRows * kTileQueries : 0);
  grids.seen = take<std::int32_t>(attention.pattern.rule != nullptr ? kTileKeys * kTileQueries : 0);
  return grids;
}

Rows Cutter::rows(std::int64_t count, std::int64_t dim) {
  // Wide rows an odd number of cache lines apart, so that a column of them does not fall on few cache sets.
  std::int64_t stride = padded(dim);
  if (stride > 4 * kPad && stride / kPad % 2 == 0) stride += kPad;
  return {take<float>(count * stride), stride};
}

}  // namespace plimsoll::kernels::cpu::attention
