// Softmax attention over packed heads. Only the log-sum-exp of each query is saved; probabilities are made again tile
// by tile in the backward pass.
#include <algorithm>

#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

std::size_t mask_inputs(const Attention& attention) { return (attention.segmented ? 1u : 0u) + (attention.rate > 0.0 ? 2u : 0u); }

// Of the operator's operands before the masks; packed stands before out and lse, or alone.
void expect_masks(const Op& op, const Attention& attention, Types inputs, std::size_t first) {
  const Shape& packed = inputs[first == 1 ? 0 : first - 3].shape;
  expect(inputs.size() == first + mask_inputs(attention), op, inputs, "[segments] and [samples, scalars] behind the tensors");
  if (attention.segmented) {
    expect(inputs[first].dtype == DType::i32 && inputs[first].shape == Shape{packed[0], packed[1]}, op, inputs, "i32 segments (B, T)");
  }
  if (attention.rate > 0.0) expect(inputs.back() == step_scalars_type(), op, inputs, "scalars as the last operand");
}

std::vector<TensorType> infer_attention(const Op& op, Types inputs) {
  const auto& attention = std::get<Attention>(op);
  const Heads& heads = attention.heads;
  expect(!inputs.empty() && inputs[0].shape.rank() == 3 && inputs[0].shape[2] == heads.packed_width() && heads.query % heads.kv == 0, op,
         inputs, "packed heads (B, T, (H+2G)*D) with H a multiple of G");
  expect_masks(op, attention, inputs, 1);
  const Shape& packed = inputs[0].shape;
  return {{inputs[0].dtype, Shape{packed[0], packed[1], heads.query * heads.dim}}, {DType::f32, Shape{packed[0], heads.query, packed[1]}}};
}

// Query-key pairs that are really looked at.
double visible_pairs(const Attention& attention, const Shape& packed) {
  const auto samples = static_cast<double>(packed[0]);
  const auto length = static_cast<double>(packed[1]);
  double per_sample = attention.causal ? length * (length + 1.0) / 2.0 : length * length;
  if (attention.window > 0) per_sample = std::min(per_sample, length * static_cast<double>(attention.window));
  return samples * static_cast<double>(attention.heads.query) * per_sample;
}

Work attention_work(const Op& op, Types inputs, Types outputs) {
  const auto& attention = std::get<Attention>(op);
  return {4.0 * visible_pairs(attention, inputs[0].shape) * static_cast<double>(attention.heads.dim), bytes_of(inputs, outputs)};
}

std::vector<ValueId> attention_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  expect_no_gradient(site, 1, "the log-sum-exp of the queries");
  std::vector<ValueId> operands{site.output_grads[0], site.inputs[0], site.outputs[0], site.outputs[1]};
  operands.insert(operands.end(), site.inputs.begin() + 1, site.inputs.end());
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = build.emit(AttentionGrad{std::get<Attention>(site.op)}, operands)[0];
  return grads;
}

std::vector<TensorType> infer_attention_grad(const Op& op, Types inputs) {
  const auto& attention = std::get<AttentionGrad>(op).forward;
  expect(inputs.size() >= 4 && inputs[1].shape.rank() == 3 && inputs[1].shape[2] == attention.heads.packed_width() &&
             inputs[0].shape == inputs[2].shape,
         op, inputs, "dout, packed, out, lse");
  expect_masks(op, attention, inputs, 4);
  return {inputs[1]};
}

Work attention_grad_work(const Op& op, Types inputs, Types outputs) {
  const auto& attention = std::get<AttentionGrad>(op).forward;
  return {10.0 * visible_pairs(attention, inputs[1].shape) * static_cast<double>(attention.heads.dim), bytes_of(inputs, outputs)};
}

std::vector<ValueId> attention_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  std::vector<ValueId> operands{site.output_grads[0]};
  operands.insert(operands.end(), site.inputs.begin(), site.inputs.end());
  std::vector<ValueId> grads = build.emit(AttentionGradGrad{std::get<AttentionGrad>(site.op).forward}, operands);
  grads.resize(site.inputs.size());
  return grads;
}

std::vector<TensorType> infer_attention_grad_grad(const Op& op, Types inputs) {
  const auto& attention = std::get<AttentionGradGrad>(op).forward;
  expect(inputs.size() >= 5 && inputs[2].shape.rank() == 3 && inputs[2].shape[2] == attention.heads.packed_width() &&
             inputs[0].shape == inputs[2].shape && inputs[1].shape == inputs[3].shape,
         op, inputs, "a gradient of dpacked, dout, packed, out, lse");
  expect_masks(op, attention, inputs, 5);
  return {inputs[1], inputs[2]};
}

// Scores, probabilities and their gradients once more, each with its derivative along the gradient that arrived.
Work attention_grad_grad_work(const Op& op, Types inputs, Types outputs) {
  const auto& attention = std::get<AttentionGradGrad>(op).forward;
  return {26.0 * visible_pairs(attention, inputs[2].shape) * static_cast<double>(attention.heads.dim), bytes_of(inputs, outputs)};
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
  const Shape& packed = inputs[view.packed()].shape;
  const Heads& heads = view.attention.heads;
  return {.samples = packed[0], .heads = heads.query, .length = packed[1], .dim = heads.dim, .gradients = view.backward};
}

Attention attention_here(Attention attention, const Seat& seat) {
  const Heads& heads = attention.heads;
  attention.first_head +=
      seat.members > heads.kv ? seat.place * (heads.query / seat.members) : seat.units_before(heads.kv) * heads.per_group();
  attention.heads = heads_here(attention.heads, seat);
  return attention;
}

PlacedOp place_attention(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 2);
  if (!last_is_split(query, 0)) return placed;
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
  attention.heads = heads_here(attention.heads, query.seat);
  placed.inputs[0] = query.inputs[0];
  placed.inputs[2] = placed.outputs[1] = on_dim(query.inputs[0], 1);
  placed.outputs[0] = on_dim(without_shared(query.inputs[0]), 2);
  placed.op = attention;
  return placed;
}

PlacedOp place_attention_grad(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (!last_is_split(query, 1)) return placed;
  const Placement queries = without_shared(query.inputs[1]);
  placed.inputs[0] = placed.inputs[2] = on_dim(queries, 2);
  placed.inputs[3] = on_dim(queries, 1);
  placed.inputs[1] = placed.outputs[0] = query.inputs[1];
  placed.op = AttentionGrad{attention_here(std::get<AttentionGrad>(query.op).forward, query.seat)};
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
