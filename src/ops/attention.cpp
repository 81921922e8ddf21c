// Softmax attention over packed heads, or over queries, keys and values that are operands of their own. Only the log-sum-exp of each query
// is saved; probabilities are made again tile by tile in the backward pass.
#include <algorithm>

#include "base/error.h"
#include "ops/families.h"
#include "ops/masks/block_map.h"
#include "ops/masks/rules.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

// Tiles of the kernels, by which prices count what a pattern lists.
constexpr BlockShape kPricedBlocks{.queries = 64, .keys = 64};

// How many operands stand behind the tensors.
std::size_t mask_inputs(const Attention& attention) {
  return (attention.segmented ? attention.separate ? 2u : 1u : 0u) + (attention.rate > 0.0 ? 2u : 0u);
}

Shape positions_of(const TensorType& rows) { return Shape{rows.shape[0], rows.shape[1]}; }

// Of the operands before the masks, of which there are `first`; queries, or packed, stand at `tensor`.
void expect_masks(const Op& op, const Attention& attention, Types inputs, std::size_t tensor, std::size_t first) {
  expect(inputs.size() == first + mask_inputs(attention), op, inputs, "[segments] and [samples, scalars] behind the tensors");
  if (attention.segmented) {
    expect(inputs[first] == TensorType{DType::i32, positions_of(inputs[tensor])}, op, inputs, "i32 segments (B, T)");
    expect(!attention.separate || inputs[first + 1] == TensorType{DType::i32, positions_of(inputs[tensor + 1])}, op, inputs,
           "i32 segments of the keys (B, K)");
  }
  if (attention.rate > 0.0) expect(inputs.back() == step_scalars_type(), op, inputs, "scalars as the last operand");
  expect(!attention.separate || attention.rate == 0.0 || attention.length > 0, op, inputs, "the length of the whole, to drop by");
  expect(attention.stride >= 1, op, inputs, "positions that increase");
  if (const std::string problem = problem_of(attention.pattern); !problem.empty()) base::bad_input("[{}] {}", name_of(op), problem);
}

// Queries, keys and values from operand `first` on.
void expect_tensors(const Op& op, const Attention& attention, Types inputs, std::size_t first) {
  const Heads& heads = attention.heads;
  expect(inputs.size() >= first + attention.tensors() && heads.query % heads.kv == 0, op, inputs,
         "query heads a multiple of the key heads");
  const TensorType& queries = inputs[first];
  if (!attention.separate) {
    expect(queries.shape.rank() == 3 && queries.shape[2] == heads.packed_width(), op, inputs, "packed heads (B, T, (H+2G)*D)");
    return;
  }
  const TensorType& keys = inputs[first + 1];
  expect(queries.shape.rank() == 3 && queries.shape[2] == heads.query * heads.dim, op, inputs, "queries (B, Q, H*D)");
  expect(keys.shape.rank() == 3 && keys == TensorType{queries.dtype, Shape{queries.shape[0], keys.shape[1], heads.kv * heads.dim}} &&
             inputs[first + 2] == keys,
         op, inputs, "keys and values (B, K, G*D)");
}

std::vector<TensorType> results_of(const Heads& heads, const TensorType& queries) {
  return {{queries.dtype, Shape{queries.shape[0], queries.shape[1], heads.query * heads.dim}},
          {DType::f32, Shape{queries.shape[0], heads.query, queries.shape[1]}}};
}

std::vector<TensorType> infer_attention(const Op& op, Types inputs) {
  const auto& attention = std::get<Attention>(op);
  expect_tensors(op, attention, inputs, 0);
  expect_masks(op, attention, inputs, 0, attention.tensors());
  return results_of(attention.heads, inputs[0]);
}

// Pairs of a query and a key, of all samples and heads, that are visible.
struct Pairs {
  double samples = 1.0;
  MaskTile whole;
  Mask mask;
  std::int64_t heads = 1;
  std::int64_t first_head = 0;

  // `count` of a head's tile.
  template <typename Count>
  double over_heads(Count&& count) const {
    const auto of_head = [&](std::int64_t head) { return count(MaskTile{whole.queries, whole.keys, first_head + head}); };
    if (!mask.by_head()) return samples * static_cast<double>(heads) * of_head(0);
    double sum = 0.0;
    for (std::int64_t head = 0; head < heads; ++head) sum += of_head(head);
    return samples * sum;
  }
  double visible() const {
    return over_heads([&](const MaskTile& tile) { return visible_pairs(mask, tile); });
  }
  double in_band() const {
    return over_heads([&](const MaskTile& tile) { return visible_pairs({mask.band, {}}, tile); });
  }
  double listed() const {
    return over_heads([&](const MaskTile& tile) { return block_map(mask, tile, kPricedBlocks).pairs; });
  }
};

Pairs pairs_of(const Attention& attention, Types tensors) {
  const Shape& queries = tensors[0].shape;
  return {.samples = static_cast<double>(queries[0]),
          .whole = {attention.queries(queries[1]), attention.keys(tensors[attention.key_operand()].shape[1])},
          .mask = attention.mask(),
          .heads = attention.heads.query,
          .first_head = attention.first_head};
}

// A window is counted as if its first queries had as many keys as the others.
double counted_pairs(const Attention& attention, const Pairs& pairs) {
  const double visible = pairs.visible();
  if (attention.window == 0 || attention.separate || attention.pattern.rule != nullptr) return visible;
  const auto length = static_cast<double>(pairs.whole.queries.count);
  const double open = attention.causal ? length * (length + 1.0) / 2.0 : length * length;
  return pairs.samples * static_cast<double>(pairs.heads) * std::min(open, length * static_cast<double>(attention.window));
}

// `flops` for each element of a head of a visible pair.
Work work_of(const Attention& attention, Types inputs, Types outputs, std::size_t first, double flops) {
  return {flops * counted_pairs(attention, pairs_of(attention, inputs.subspan(first))) * static_cast<double>(attention.heads.dim),
          bytes_of(inputs, outputs)};
}

Work attention_work(const Op& op, Types inputs, Types outputs) { return work_of(std::get<Attention>(op), inputs, outputs, 0, 4.0); }

// Queries, keys and values, each with its own gradient.
std::vector<ValueId> separate_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& attention = std::get<Attention>(site.op);
  if (!site.output_grads[0].valid())
    base::not_legal("[attention] a gradient arrived at the log-sum-exp alone; expected one at what attention gives too");
  AttentionGrad grad{attention};
  grad.of_lse = site.output_grads[1].valid();
  std::vector<ValueId> operands{site.output_grads[0]};
  operands.insert(operands.end(), site.inputs.begin(), site.inputs.begin() + static_cast<std::ptrdiff_t>(attention.tensors()));
  operands.insert(operands.end(), site.outputs.begin(), site.outputs.end());
  if (grad.of_lse) operands.push_back(site.output_grads[1]);
  operands.insert(operands.end(), site.inputs.begin() + static_cast<std::ptrdiff_t>(attention.tensors()), site.inputs.end());
  std::vector<ValueId> grads = build.emit(grad, operands);
  grads.resize(site.inputs.size());
  return grads;
}

std::vector<ValueId> attention_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  if (std::get<Attention>(site.op).separate) return separate_adjoint(site, build);
  expect_no_gradient(site, 1, "the log-sum-exp of the queries");
  std::vector<ValueId> operands{site.output_grads[0], site.inputs[0], site.outputs[0], site.outputs[1]};
  operands.insert(operands.end(), site.inputs.begin() + 1, site.inputs.end());
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = build.emit(AttentionGrad{std::get<Attention>(site.op)}, operands)[0];
  return grads;
}

std::vector<TensorType> infer_attention_grad(const Op& op, Types inputs) {
  const auto& grad = std::get<AttentionGrad>(op);
  const Attention& attention = grad.forward;
  expect_tensors(op, attention, inputs, 1);
  const std::size_t out = grad.out_operand();
  expect(inputs.size() >= out + 2 && inputs[0].shape == inputs[out].shape && (!grad.of_lse || attention.separate), op, inputs,
         attention.separate ? "dout, queries, keys, values, out, lse" : "dout, packed, out, lse");
  expect(!grad.of_lse || (inputs.size() > out + 2 && inputs[out + 2] == inputs[out + 1]), op, inputs, "a gradient of lse behind it");
  expect_masks(op, attention, inputs, 1, grad.masks());
  const Types tensors = inputs.subspan(1, attention.tensors());
  return {tensors.begin(), tensors.end()};
}

Work attention_grad_work(const Op& op, Types inputs, Types outputs) {
  return work_of(std::get<AttentionGrad>(op).forward, inputs, outputs, 1, 10.0);
}

std::vector<ValueId> attention_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  if (std::get<AttentionGrad>(site.op).forward.separate)
    base::not_legal("[attention_grad] second derivatives are written for packed heads, not for separate queries, keys and values");
  std::vector<ValueId> operands{site.output_grads[0]};
  operands.insert(operands.end(), site.inputs.begin(), site.inputs.end());
  std::vector<ValueId> grads = build.emit(AttentionGradGrad{std::get<AttentionGrad>(site.op).forward}, operands);
  grads.resize(site.inputs.size());
  return grads;
}

std::vector<TensorType> infer_attention_grad_grad(const Op& op, Types inputs) {
  const auto& attention = std::get<AttentionGradGrad>(op).forward;
  expect(inputs.size() >= 5 && !attention.separate && inputs[0].shape == inputs[2].shape && inputs[1].shape == inputs[3].shape, op, inputs,
         "a gradient of dpacked, dout, packed, out, lse");
  expect_tensors(op, attention, inputs, 2);
  expect_masks(op, attention, inputs, 2, 5);
  return {inputs[1], inputs[2]};
}

// Scores, probabilities and their gradients once more, each with its derivative along the gradient that arrived.
Work attention_grad_grad_work(const Op& op, Types inputs, Types outputs) {
  return work_of(std::get<AttentionGradGrad>(op).forward, inputs, outputs, 2, 26.0);
}

std::vector<TensorType> infer_cached_attention(const Op& op, Types inputs) {
  const Heads& heads = std::get<CachedAttention>(op).heads;
  expect(inputs.size() == 3 && inputs[0].shape.rank() == 3 && inputs[0].shape[2] == heads.packed_width(), op, inputs,
         "packed heads (B, T, (H+2G)*D), positions, cache");
  const Shape& packed = inputs[0].shape;
  expect(inputs[1] == TensorType{DType::i32, Shape{packed[0], packed[1]}}, op, inputs, "i32 positions (B, T)");
  const Shape& cache = inputs[2].shape;
  expect(inputs[2].dtype == inputs[0].dtype && cache.rank() == 4 && cache == Shape{packed[0], 2 * heads.kv, cache[2], heads.dim}, op,
         inputs, "a cache (B, 2G, S, D) of the same element type");
  return {{inputs[0].dtype, Shape{packed[0], packed[1], heads.query * heads.dim}}, inputs[2]};
}

// As much as there may be to look at: how far the text has come is known only when it runs.
Work cached_attention_work(const Op& op, Types inputs, Types outputs) {
  const auto& attention = std::get<CachedAttention>(op);
  const Shape& cache = inputs[2].shape;
  const std::int64_t seen = attention.window > 0 ? std::min(attention.window, cache[2]) : cache[2];
  const double flops = 4.0 * static_cast<double>(outputs[0].shape.elements()) * static_cast<double>(seen);
  return {flops, bytes_of(inputs, outputs.first(1))};
}

Scores scores_of(const Op& op, Types inputs) {
  const AttentionView view = attention_of(op);
  const Attention& attention = view.attention;
  const Types tensors = inputs.subspan(view.packed());
  Scores scores{.samples = tensors[0].shape[0],
                .heads = attention.heads.query,
                .length = tensors[0].shape[1],
                .keys = tensors[attention.key_operand()].shape[1],
                .dim = attention.heads.dim,
                .gradients = view.backward};
  if (attention.pattern.rule == nullptr) return scores;
  const Pairs pairs = pairs_of(attention, tensors);
  const double listed = pairs.listed();
  scores.listed = listed / std::max(pairs.visible(), 1.0);
  scores.density = std::min(1.0, listed / std::max(pairs.in_band(), 1.0));
  return scores;
}

// How many query heads the ranks before have.
std::int64_t heads_before(const Heads& heads, const Seat& seat) {
  return seat.members > heads.kv ? seat.place * (heads.query / seat.members) : seat.units_before(heads.kv) * heads.per_group();
}

Attention attention_here(Attention attention, const Seat& seat) {
  attention.first_head += heads_before(attention.heads, seat);
  attention.heads = heads_here(attention.heads, seat);
  return attention;
}

PlacedOp place_attention(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 2);
  if (std::get<Attention>(query.op).separate || !last_is_split(query, 0)) return placed;
  placed.inputs[0] = query.inputs[0];
  const Placement queries = without_shared(query.inputs[0]);
  placed.outputs = {on_dim(queries, 2), on_dim(queries, 1)};
  placed.op = attention_here(std::get<Attention>(query.op), query.seat);
  return placed;
}

// A rank's cache has the keys and values of its own heads.
PlacedOp place_cached_attention(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 2);
  if (!last_is_split(query, 0)) return placed;
  CachedAttention attention = std::get<CachedAttention>(query.op);
  if (attention.pattern.rule != nullptr) attention.first_head += heads_before(attention.heads, query.seat);
  attention.heads = heads_here(attention.heads, query.seat);
  placed.inputs[0] = query.inputs[0];
  placed.inputs[2] = placed.outputs[1] = on_dim(query.inputs[0], 1);
  placed.outputs[0] = on_dim(without_shared(query.inputs[0]), 2);
  placed.op = attention;
  return placed;
}

PlacedOp place_attention_grad(const PlacementQuery& query) {
  const Attention& attention = std::get<AttentionGrad>(query.op).forward;
  PlacedOp placed = place_whole(query, attention.tensors());
  if (attention.separate || !last_is_split(query, 1)) return placed;
  const Placement queries = without_shared(query.inputs[1]);
  placed.inputs[0] = placed.inputs[2] = on_dim(queries, 2);
  placed.inputs[3] = on_dim(queries, 1);
  placed.inputs[1] = placed.outputs[0] = query.inputs[1];
  placed.op = AttentionGrad{attention_here(attention, query.seat)};
  return placed;
}

}  // namespace

AttentionView attention_of(const Op& op) {
  if (const auto* grad = std::get_if<AttentionGrad>(&op)) return {grad->forward, true};
  return {std::get<Attention>(op)};
}

Definition define(const CachedAttention&) {
  return {.infer = infer_cached_attention,
          .work = cached_attention_work,
          .no_adjoint = "it reads and extends a cache that outlives the step; differentiate a graph that is built without a cache",
          .aliases = [](const Op&) { return std::vector<Alias>{{.output = 1, .input = 2, .required = true}}; },
          .place = place_cached_attention};
}

Definition define(const Attention&) {
  return {.infer = infer_attention, .work = attention_work, .adjoint = attention_adjoint, .place = place_attention, .scores = scores_of};
}

Definition define(const AttentionGrad&) {
  return {.infer = infer_attention_grad,
          .work = attention_grad_work,
          .adjoint = attention_grad_adjoint,
          .place = place_attention_grad,
          .scores = scores_of};
}

Definition define(const AttentionGradGrad&) {
  return {.infer = infer_attention_grad_grad, .work = attention_grad_grad_work, .no_adjoint = kNoThird};
}

}  // namespace plimsoll::ops
