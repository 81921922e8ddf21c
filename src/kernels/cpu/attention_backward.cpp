// Attention backward. For a query tile and a key tile (P probabilities after dropout, S scores, * made again):
//   S* = scale Q K^T,  P* = exp(S - lse),  dP = dO V^T,  dS = P (dP - delta),  delta = dO . O - dlse
//   dV += P^T dO,  dQ += scale dS K,  dK += scale dS^T Q
//
// Two ways with the same bits, as each sum takes the same tiles in the same order through the same code:
//   whole   a thread takes all query heads and all tiles of one (sample, key-value head): five products for each pair
//           of tiles, and dK, dV of the whole head in scratch.
//   split   threads take query tiles for dQ, then key tiles for dK and dV: seven products for each pair of tiles, but
//           as many pieces as there are tiles.
// The number of threads decides which is quicker.
#include <omp.h>

#include <algorithm>
#include <limits>

#include "kernels/cpu/attention_problem.h"

namespace plimsoll::kernels::cpu::attention {

namespace {

constexpr int kWholeProducts = 5;
constexpr int kSplitProducts = 8;  // seven, and more loading and exponentials for them

bool splits(std::int64_t heads, int threads) {
  const std::int64_t rounds = (heads + threads - 1) / threads;
  return rounds * threads * kWholeProducts > heads * kSplitProducts;
}

struct QueryScratch {
  Rows query, gradient;                           // Q, dO (kTileQueries, D)
  float *query_transposed, *gradient_transposed;  // (D, kTileQueries)
  float *lse, *delta;                             // (kTileQueries); lse in powers of two
  Rows sum;                                       // dQ
  SegmentTile* ids;
};

struct KeyScratch {
  Rows key, value, key_sum, value_sum;  // K, V, dK, dV (kTileKeys or T, D)
  SegmentTile* ids;
};

struct Scratch {
  QueryScratch query;
  KeyScratch key;
  float *scores, *gradients;  // grids
  MaskGrids masks;
};

Scratch cut(Cutter& cutter, const ops::Attention& attention, std::int64_t key_rows) {
  const std::int64_t dim = attention.heads.dim;
  Scratch scratch;
  QueryScratch& query = scratch.query;
  query.query = cutter.rows(kTileQueries, dim);
  query.gradient = cutter.rows(kTileQueries, dim);
  query.query_transposed = cutter.take<float>(padded(dim) * kTileQueries);
  query.gradient_transposed = cutter.take<float>(padded(dim) * kTileQueries);
  query.lse = cutter.take<float>(kTileQueries);
  query.delta = cutter.take<float>(kTileQueries);
  query.sum = cutter.rows(kTileQueries, dim);
  query.ids = cutter.take<SegmentTile>(1);
  for (Rows* rows : {&scratch.key.key, &scratch.key.value, &scratch.key.key_sum, &scratch.key.value_sum}) {
    *rows = cutter.rows(key_rows, dim);
  }
  scratch.key.ids = cutter.take<SegmentTile>(1);
  scratch.scores = cutter.take<float>(kTileKeys * kTileQueries);
  scratch.gradients = cutter.take<float>(kTileKeys * kTileQueries);
  scratch.masks = cutter.mask_grids(attention);
  return scratch;
}

std::int64_t key_rows_of(const ops::Attention& attention, std::int64_t batch, std::int64_t keys, int threads) {
  return splits(batch * attention.heads.kv, threads) ? kTileKeys : padded(keys);
}

struct Wanted {
  bool query = true;
  bool key = true;
};

class Backward {
 public:
  Backward(const ops::AttentionGrad& grad, const Call& call)
      : problem_(grad, call),
        call_(call),
        tensors_(call.inputs.subspan(1)),
        out_(grad.out_operand()),
        of_lse_(grad.of_lse),
        ops_(tile_ops()) {}

  const Problem& problem() const { return problem_; }

  void whole_head(std::int64_t sample, std::int64_t kv_head, Scratch& scratch) const {
    const Range all{0, problem_.keys()};
    load_keys(sample, kv_head, all, scratch.key);
    const std::int64_t tiles = tiles_of(problem_.queries(), kTileQueries);
    for (std::int64_t head = first_head(kv_head); head < first_head(kv_head + 1); ++head) {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const Range queries = tile_range(tile, kTileQueries, problem_.queries());
        load_queries(sample, head, queries, scratch.query);
        const Range key_tiles = problem_.key_tiles_of(queries);
        for (std::int64_t key_tile = key_tiles.begin; key_tile < key_tiles.end; ++key_tile) {
          const Range keys = tile_range(key_tile, kTileKeys, all.end);
          problem_.read_segments(sample, keys, true, *scratch.key.ids);
          add_pair({sample, head, queries, keys}, keys.begin, {}, scratch);
        }
        store_queries(sample, head, queries, scratch.query);
      }
    }
    store_keys(sample, kv_head, all, scratch.key);
  }

  void query_tile(std::int64_t sample, std::int64_t head, Range queries, Scratch& scratch) const {
    const std::int64_t kv_head = head / problem_.heads().per_group();
    load_queries(sample, head, queries, scratch.query);
    const Range key_tiles = problem_.key_tiles_of(queries);
    for (std::int64_t key_tile = key_tiles.begin; key_tile < key_tiles.end; ++key_tile) {
      const Range keys = tile_range(key_tile, kTileKeys, problem_.keys());
      load_keys(sample, kv_head, keys, scratch.key);
      problem_.read_segments(sample, keys, true, *scratch.key.ids);
      add_pair({sample, head, queries, keys}, 0, {.query = true, .key = false}, scratch);
    }
    store_queries(sample, head, queries, scratch.query);
  }

  void key_tile(std::int64_t sample, std::int64_t kv_head, Range keys, Scratch& scratch) const {
    load_keys(sample, kv_head, keys, scratch.key);
    problem_.read_segments(sample, keys, true, *scratch.key.ids);
    const Range query_tiles = problem_.query_tiles_of(keys);
    for (std::int64_t head = first_head(kv_head); head < first_head(kv_head + 1); ++head) {
      for (std::int64_t tile = query_tiles.begin; tile < query_tiles.end; ++tile) {
        const Range queries = tile_range(tile, kTileQueries, problem_.queries());
        load_queries(sample, head, queries, scratch.query);
        add_pair({sample, head, queries, keys}, 0, {.query = false, .key = true}, scratch);
      }
    }
    store_keys(sample, kv_head, keys, scratch.key);
  }

 private:
  std::int64_t first_head(std::int64_t kv_head) const { return kv_head * problem_.heads().per_group(); }

  void load_queries(std::int64_t sample, std::int64_t head, Range queries, QueryScratch& scratch) const {
    const std::int64_t dim = problem_.heads().dim;
    const int rows = static_cast<int>(padded(queries.size()));
    ops_.load(problem_.query_rows(tensors_, sample, head, queries.begin), queries.size(), rows, dim, scratch.query);
    ops_.load(problem_.output_rows(call_.inputs[0], sample, head, queries.begin), queries.size(), rows, dim, scratch.gradient);
    ops_.load(problem_.output_rows(call_.inputs[out_], sample, head, queries.begin), queries.size(), rows, dim, scratch.sum);
    const std::int64_t stat = (sample * problem_.heads().query + head) * problem_.queries() + queries.begin;
    ops_.row_dots(scratch.gradient, scratch.sum, rows, dim, scratch.delta);
    if (of_lse_) {
      const float* arrived = call_.inputs[out_ + 2].as<const float>() + stat;
      for (int i = 0; i < queries.size(); ++i) scratch.delta[i] -= arrived[i];
    }
    ops_.transpose(scratch.query, rows, dim, problem_.scale() * static_cast<float>(kLog2E), scratch.query_transposed);
    ops_.transpose(scratch.gradient, rows, dim, 1.0f, scratch.gradient_transposed);
    std::fill_n(scratch.sum.data, rows * scratch.sum.stride, 0.0f);
    problem_.read_segments(sample, queries, false, *scratch.ids);
    // Infinity makes every probability zero: for padding, and for queries that saw nothing.
    const float* lse = call_.inputs[out_ + 1].as<const float>() + stat;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    for (int i = 0; i < rows; ++i) {
      const bool sees = i < queries.size() && lse[i] != -kInfinity;
      scratch.lse[i] = sees ? static_cast<float>(lse[i] * kLog2E) : kInfinity;
    }
  }

  void load_keys(std::int64_t sample, std::int64_t kv_head, Range keys, KeyScratch& scratch) const {
    const std::int64_t dim = problem_.heads().dim;
    const int rows = static_cast<int>(padded(keys.size()));
    ops_.load(problem_.key_rows(tensors_, sample, kv_head, keys.begin), keys.size(), rows, dim, scratch.key);
    ops_.load(problem_.value_rows(tensors_, sample, kv_head, keys.begin), keys.size(), rows, dim, scratch.value);
    std::fill_n(scratch.key_sum.data, rows * scratch.key_sum.stride, 0.0f);
    std::fill_n(scratch.value_sum.data, rows * scratch.value_sum.stride, 0.0f);
  }

  // Adds what one pair of tiles gives. The keys' rows begin at `key_row` of their scratch.
  void add_pair(const Problem::PairPlace& place, std::int64_t key_row, Wanted wanted, Scratch& scratch) const {
    const std::int64_t dim = problem_.heads().dim;
    const QueryScratch& query = scratch.query;
    const KeyScratch& key = scratch.key;
    const std::optional<TilePair> pair = problem_.meet(place, *query.ids, *key.ids, scratch.masks);
    if (!pair) return;
    ops_.score_product(*pair, key.key.from(key_row), query.query_transposed, dim, scratch.scores);
    ops_.score_product(*pair, key.value.from(key_row), query.gradient_transposed, dim, scratch.gradients);
    ops_.softmax_grad(*pair, query.lse, query.delta, scratch.scores, scratch.gradients);
    if (wanted.query) ops_.query_product(*pair, scratch.gradients, key.key.from(key_row), dim, query.sum);
    if (wanted.key) {
      ops_.key_product(*pair, scratch.scores, query.gradient, dim, key.value_sum.from(key_row));
      ops_.key_product(*pair, scratch.gradients, query.query, dim, key.key_sum.from(key_row));
    }
  }

  void store_queries(std::int64_t sample, std::int64_t head, Range queries, const QueryScratch& scratch) const {
    const TensorRows dst = problem_.query_rows(call_.outputs, sample, head, queries.begin);
    ops_.store(scratch.sum, queries.size(), problem_.heads().dim, problem_.scale(), nullptr, dst);
  }

  void store_keys(std::int64_t sample, std::int64_t kv_head, Range keys, const KeyScratch& scratch) const {
    const std::int64_t dim = problem_.heads().dim;
    const TensorRows key_dst = problem_.key_rows(call_.outputs, sample, kv_head, keys.begin);
    const TensorRows value_dst = problem_.value_rows(call_.outputs, sample, kv_head, keys.begin);
    ops_.store(scratch.key_sum, keys.size(), dim, problem_.scale(), nullptr, key_dst);
    ops_.store(scratch.value_sum, keys.size(), dim, 1.0f, nullptr, value_dst);
  }

  Problem problem_;
  const Call& call_;
  std::span<const Tensor> tensors_;  // queries, keys and values, or packed
  std::size_t out_;                  // where out is, which lse follows
  bool of_lse_;
  const TileOps& ops_;
};

}  // namespace

std::int64_t backward_workspace(const ops::Attention& attention, std::int64_t batch, std::int64_t keys, int threads) {
  Cutter cutter(nullptr);
  cut(cutter, attention, key_rows_of(attention, batch, keys, threads));
  return cutter.used() * threads;
}

void run_backward(const ops::AttentionGrad& grad, const Call& call) {
  const ops::Attention& attention = grad.forward;
  const Backward backward(grad, call);
  const Problem& problem = backward.problem();
  const ops::Heads& heads = problem.heads();
  const std::int64_t whole_heads = problem.batch() * heads.kv;
  const std::int64_t query_heads = problem.batch() * heads.query;
  const bool split = splits(whole_heads, call.threads);
  const std::int64_t query_tiles = tiles_of(problem.queries(), kTileQueries);
  const std::int64_t key_tiles = tiles_of(problem.keys(), kTileKeys);
  const std::int64_t bytes = backward_workspace(attention, problem.batch(), problem.keys(), call.threads) / call.threads;
#pragma omp parallel num_threads(call.threads)
  {
    Cutter cutter(call.workspace + omp_get_thread_num() * bytes);
    Scratch scratch = cut(cutter, attention, key_rows_of(attention, problem.batch(), problem.keys(), call.threads));
    if (!split) {
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t unit = 0; unit < whole_heads; ++unit) backward.whole_head(unit / heads.kv, unit % heads.kv, scratch);
    } else {
      // The tiles with most to do under causality go first: late queries, early keys.
#pragma omp for schedule(dynamic, 1) nowait
      for (std::int64_t unit = 0; unit < query_heads * query_tiles; ++unit) {
        const Range queries = tile_range(query_tiles - 1 - unit / query_heads, kTileQueries, problem.queries());
        backward.query_tile(unit % query_heads / heads.query, unit % heads.query, queries, scratch);
      }
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t unit = 0; unit < whole_heads * key_tiles; ++unit) {
        const Range keys = tile_range(unit / whole_heads, kTileKeys, problem.keys());
        backward.key_tile(unit % whole_heads / heads.kv, unit % heads.kv, keys, scratch);
      }
    }
  }
}

}  // namespace plimsoll::kernels::cpu::attention
