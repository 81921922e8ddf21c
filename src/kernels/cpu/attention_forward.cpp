// Attention forward: each query tile of each head meets the key tiles it may see, in order, with a running softmax. The
// tiles are independent, so any number of threads takes them as they come and the result is the same.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_problem.h"

namespace plimsoll::kernels::cpu::attention {

namespace {

// So many heads for each thread, and it does not matter if the last one ends later.
constexpr std::int64_t kHeadsForWhole = 8;

struct Scratch {
  Rows query;         // (kTileQueries, D)
  float* transposed;  // (D, kTileQueries)
  Rows key, value;    // (kTileKeys, D)
  float* grid;        // (kTileKeys, kTileQueries)
  MaskGrids masks;
  Rows sum;  // (kTileQueries, D)
  SoftmaxState* state;
  SegmentTile *query_ids, *key_ids;
};

Scratch cut(Cutter& cutter, const ops::Attention& attention) {
  const std::int64_t dim = attention.heads.dim;
  Scratch scratch;
  scratch.query = cutter.rows(kTileQueries, dim);
  scratch.transposed = cutter.take<float>(padded(dim) * kTileQueries);
  scratch.key = cutter.rows(kTileKeys, dim);
  scratch.value = cutter.rows(kTileKeys, dim);
  scratch.grid = cutter.take<float>(kTileKeys * kTileQueries);
  scratch.masks = cutter.mask_grids(attention);
  scratch.sum = cutter.rows(kTileQueries, dim);
  scratch.state = cutter.take<SoftmaxState>(1);
  scratch.query_ids = cutter.take<SegmentTile>(1);
  scratch.key_ids = cutter.take<SegmentTile>(1);
  return scratch;
}

class Forward {
 public:
  Forward(const ops::Attention& attention, const Call& call) : problem_(attention, call), call_(call), ops_(tile_ops()) {}

  const Problem& problem() const { return problem_; }

  void query_tile(std::int64_t sample, std::int64_t head, Range queries, Scratch& scratch) const {
    const std::int64_t dim = problem_.heads().dim;
    const int rows = static_cast<int>(padded(queries.size()));
    ops_.load(problem_.query_rows(call_.inputs, sample, head, queries.begin), queries.size(), rows, dim, scratch.query);
    ops_.transpose(scratch.query, rows, dim, problem_.scale() * static_cast<float>(kLog2E), scratch.transposed);
    problem_.read_segments(sample, queries, false, *scratch.query_ids);
    std::fill_n(scratch.state->max, kTileQueries, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.state->sum, kTileQueries, 0.0f);
    std::fill_n(scratch.sum.data, kTileQueries * scratch.sum.stride, 0.0f);
    const Range tiles = problem_.key_tiles_of(queries);
    for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      key_tile({sample, head, queries, tile_range(tile, kTileKeys, problem_.keys())}, scratch);
    }
    finish(sample, head, queries, scratch);
  }

 private:
  void key_tile(const Problem::PairPlace& place, Scratch& scratch) const {
    const std::int64_t dim = problem_.heads().dim;
    const std::int64_t kv_head = place.head / problem_.heads().per_group();
    problem_.read_segments(place.sample, place.keys, true, *scratch.key_ids);
    const std::optional<TilePair> pair = problem_.meet(place, *scratch.query_ids, *scratch.key_ids, scratch.masks);
    if (!pair) return;
    const int rows = static_cast<int>(padded(pair->keys));
    ops_.load(problem_.key_rows(call_.inputs, place.sample, kv_head, place.keys.begin), pair->keys, rows, dim, scratch.key);
    ops_.load(problem_.value_rows(call_.inputs, place.sample, kv_head, place.keys.begin), pair->keys, rows, dim, scratch.value);
    ops_.score_product(*pair, scratch.key, scratch.transposed, dim, scratch.grid);
    ops_.softmax(*pair, scratch.grid, *scratch.state);
    ops_.rescale(*scratch.state, pair->queries, dim, scratch.sum);
    ops_.query_product(*pair, scratch.grid, scratch.value, dim, scratch.sum);
  }

  void finish(std::int64_t sample, std::int64_t head, Range queries, Scratch& scratch) const {
    SoftmaxState& state = *scratch.state;
    float* lse = call_.outputs[1].as<float>() + (sample * problem_.heads().query + head) * problem_.queries() + queries.begin;
    for (int i = 0; i < queries.size(); ++i) {
      const bool saw_nothing = state.sum[i] == 0.0f;
      lse[i] = saw_nothing ? -std::numeric_limits<float>::infinity() : static_cast<float>(state.max[i] * kLn2 + std::log(state.sum[i]));
      state.rescale[i] = saw_nothing ? 0.0f : 1.0f / state.sum[i];
    }
    const TensorRows out = problem_.output_rows(call_.outputs[0], sample, head, queries.begin);
    ops_.store(scratch.sum, queries.size(), problem_.heads().dim, 1.0f, state.rescale, out);
  }

  Problem problem_;
  const Call& call_;
  const TileOps& ops_;
};

}  // namespace

std::int64_t forward_workspace(const ops::Attention& attention, int threads) {
  Cutter cutter(nullptr);
  cut(cutter, attention);
  return cutter.used() * threads;
}

void run_forward(const ops::Attention& attention, const Call& call) {
  const Forward forward(attention, call);
  const Problem& problem = forward.problem();
  const std::int64_t tiles = tiles_of(problem.queries(), kTileQueries);
  const std::int64_t query_heads = problem.batch() * problem.heads().query;
  const std::int64_t bytes = forward_workspace(attention, 1);
  // A thread that takes a whole head finds its keys in the cache; where that would leave threads idle at the end, tiles.
  const std::int64_t taken = query_heads >= kHeadsForWhole * call.threads ? tiles : 1;
#pragma omp parallel num_threads(call.threads)
  {
    Cutter cutter(call.workspace + omp_get_thread_num() * bytes);
    Scratch scratch = cut(cutter, attention);
#pragma omp for schedule(dynamic, taken)
    for (std::int64_t unit = 0; unit < query_heads * tiles; ++unit) {
      const std::int64_t sample = unit / tiles / problem.heads().query;
      const std::int64_t head = unit / tiles % problem.heads().query;
      // Late tiles see the most keys under causality: first, so that the threads end together.
      const Range queries = tile_range(tiles - 1 - unit % tiles, kTileQueries, problem.queries());
      forward.query_tile(sample, head, queries, scratch);
    }
  }
}

}  // namespace plimsoll::kernels::cpu::attention
