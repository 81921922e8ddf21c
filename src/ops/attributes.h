// The operators of Plimsoll, each a struct of attributes. kName and fields() give printing, parsing and hashing once
// for all (catalogue.cpp); what an operator means is said in the file of its family (linear.cpp, norm.cpp, ...).
//
// Conventions. Shapes: B samples, T positions, C width, H query heads, G key-value heads, D head size, V vocabulary,
// F inner width; rows = B*T. Matrices are row-major, weights (out, in). `packed` (B, T, (H+2G)*D) holds, for each
// key-value head g in turn, its H/G query heads, its key and its value: a split of the last dim by groups is
// contiguous, which is what tensor parallelism needs.
// `scalars` is the StepScalars block. An operator with `accumulate` takes, after its other inputs, the present value
// of each gradient it adds to, and its outputs overwrite them.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/shape.h"

namespace plimsoll::ops {

// The axes of the device mesh. `pipe` is outermost, `tensor` innermost: neighbours on `tensor` talk most. `tied` joins the two
// places of the pipe axis that hold one weight: the first, with the embedding, and that of the head. `data` has two levels: ranks of
// `data_inner` share out what they hold, those of `data_outer` hold the same. Ranks of `tensor_inner` hold the same key-value head,
// where there are more ranks than such heads.
enum class Axis : std::uint8_t { pipe, data, tensor, tied, data_inner, data_outer, tensor_inner };
inline constexpr std::size_t kAxes = 7;
// Where memory is. Where the device is the processor, its memory and the host's are two arenas of the same.
enum class Tier : std::uint8_t { device, host, disk };

enum class CollectiveKind : std::uint8_t { all_reduce, reduce_scatter, all_gather, reduce, broadcast };

enum class ActivationKind : std::uint8_t { none, gelu_tanh, gelu_erf, relu, silu };
enum class NormKind : std::uint8_t { layer, rms };

// An id that is valid, but belongs to another rank's part of the table.
inline constexpr std::int32_t kElsewhere = 0x7FFFFFFF;

#define PLIMSOLL_OP(NAME)                         \
  static constexpr std::string_view kName = NAME; \
  template <typename Self, typename Visit>        \
  static void fields([[maybe_unused]] Self& self, [[maybe_unused]] Visit&& visit)

// How query, key and value heads lie in a packed row.
struct Heads {
  std::int64_t query = 1;
  std::int64_t kv = 1;
  std::int64_t dim = 64;

  std::int64_t per_group() const { return query / kv; }
  std::int64_t packed_width() const { return (query + 2 * kv) * dim; }
  std::int64_t query_offset(std::int64_t head) const { return ((head / per_group()) * (per_group() + 2) + head % per_group()) * dim; }
  std::int64_t key_offset(std::int64_t kv_head) const { return (kv_head * (per_group() + 2) + per_group()) * dim; }
  std::int64_t value_offset(std::int64_t kv_head) const { return key_offset(kv_head) + dim; }
  bool operator==(const Heads&) const = default;
};

// ---- embedding.cpp

// (ids_0, table_0, ids_1, table_1, ...) -> sum of the looked-up rows (B, T, C).
// An id of kElsewhere adds nothing: its row is in another rank's part of the table.
struct Embed {
  std::int64_t tables = 1;
  std::int64_t padding = -1;  // an id of the first table that its gradient passes over; -1: none
  PLIMSOLL_OP("embed") {
    visit("tables", self.tables);
    visit("padding", self.padding);
  }
  bool operator==(const Embed&) const = default;
};

// (ids) i32 -> where they are in the part [first, first + rows) of a table or vocabulary: less `first`, or kElsewhere;
// negative ones stay.
struct ShiftIds {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t hidden = -1;  // an id that counts as elsewhere; -1: none
  PLIMSOLL_OP("shift_ids") {
    visit("first", self.first);
    visit("rows", self.rows);
    visit("hidden", self.hidden);
  }
  bool operator==(const ShiftIds&) const = default;
};

// (ids, dy) -> dtable (rows, C). Ids of kElsewhere are passed over.
struct EmbedGrad {
  std::int64_t rows = 0;
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("embed_grad") {
    visit("rows", self.rows);
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const EmbedGrad&) const = default;
};

// ---- linear.cpp

// (x (.., K), w (N, K), [bias (N)]) -> y (.., N); with an activation -> (y, pre), y = activation(pre).
struct Linear {
  bool bias = false;
  ActivationKind activation = ActivationKind::none;
  PLIMSOLL_OP("linear") {
    visit("bias", self.bias);
    visit("activation", self.activation);
  }
  bool operator==(const Linear&) const = default;
};

// (dy (.., N), w (N, K), [pre (.., K)]) -> dx (.., K); with an activation, times activation'(pre): the gradient before it.
struct LinearGradInput {
  ActivationKind activation = ActivationKind::none;
  PLIMSOLL_OP("linear_grad_input") { visit("activation", self.activation); }
  bool operator==(const LinearGradInput&) const = default;
};

// (dy (.., N), x (.., K)) -> dw (N, K).
struct LinearGradWeight {
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("linear_grad_weight") {
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const LinearGradWeight&) const = default;
};

// (dy (.., N)) -> db (N).
struct BiasGrad {
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("bias_grad") {
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const BiasGrad&) const = default;
};

// ---- quantize.cpp: products of 8-bit operands

// (x (.., K), [pre (.., K)], [history (H) f32]) -> (q (.., K), its transpose (K, rows), scale (1) f32, amax (1) f32, [sums (K)]). amax
// is the largest |z| of z = activation(x) or, with slopes, x * activation'(pre); the sums are over the rows of z: a bias gradient. The
// scale is the least power of two with which the type holds amax, or the largest of the history where that holds anything but zeros;
// 1 for zero, NaN for what is not finite. q = z / scale, to nearest even, beyond the type's range its largest.
struct Quantize {
  base::DType dtype = base::DType::f8e4m3;
  ActivationKind activation = ActivationKind::none;
  bool slopes = false;
  std::int64_t history = 0;  // H; 0: there is none
  bool sums = false;
  base::DType sums_dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("quantize") {
    visit("dtype", self.dtype);
    visit("activation", self.activation);
    visit("slopes", self.slopes);
    visit("history", self.history);
    visit("sums", self.sums);
    visit("sums_dtype", self.sums_dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const Quantize&) const = default;
};

// (history (H) f32, amax (n) f32) -> the history without its oldest entry, and the largest amax behind the others; in place.
struct NoteAmax {
  PLIMSOLL_OP("note_amax") {}
  bool operator==(const NoteAmax&) const = default;
};

// (a (.., K), b (N, K), scale of a (1) f32, scale of b (1) f32, [bias (N)]) -> y (.., N) = a b^T times both scales, + bias.
// A linear layer and, on transposes, both of its gradients.
struct ScaledLinear {
  bool bias = false;
  base::DType dtype = base::DType::bf16;
  bool accumulate = false;
  PLIMSOLL_OP("scaled_linear") {
    visit("bias", self.bias);
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const ScaledLinear&) const = default;
};

// ---- activation.cpp

// (x) -> activation(x).
struct Activation {
  ActivationKind kind = ActivationKind::gelu_tanh;
  PLIMSOLL_OP("activation") { visit("kind", self.kind); }
  bool operator==(const Activation&) const = default;
};

// (dy, x) -> dy * activation'(x).
struct ActivationGrad {
  ActivationKind kind = ActivationKind::gelu_tanh;
  PLIMSOLL_OP("activation_grad") { visit("kind", self.kind); }
  bool operator==(const ActivationGrad&) const = default;
};

// (x (.., 2F)), columns alternating gate and up -> activation(gate) * up (.., F). Alternating, so that any even split
// of the columns keeps pairs together.
struct Gate {
  ActivationKind kind = ActivationKind::silu;
  PLIMSOLL_OP("gate") { visit("kind", self.kind); }
  bool operator==(const Gate&) const = default;
};

// (dy (.., F), x (.., 2F)) -> dx (.., 2F).
struct GateGrad {
  ActivationKind kind = ActivationKind::silu;
  PLIMSOLL_OP("gate_grad") { visit("kind", self.kind); }
  bool operator==(const GateGrad&) const = default;
};

// ---- elementwise.cpp

// (a, b) -> a + b.
struct Add {
  PLIMSOLL_OP("add") {}
  bool operator==(const Add&) const = default;
};

// (x) -> x in another element type.
struct Cast {
  base::DType dtype = base::DType::f32;
  PLIMSOLL_OP("cast") { visit("dtype", self.dtype); }
  bool operator==(const Cast&) const = default;
};

// (x (.., N)) -> its columns [first, first + count): what a tile of a weight's rows takes of a gradient.
struct TakeColumns {
  std::int64_t first = 0;
  std::int64_t count = 1;
  PLIMSOLL_OP("take_columns") {
    visit("first", self.first);
    visit("count", self.count);
  }
  bool operator==(const TakeColumns&) const = default;
};

// (x (.., n), [y (.., columns)]) -> y with x in its columns from `first` on: what tiles made, put together one by one. The first of them
// has no y yet (`into` is false), and the other columns of its result hold nothing.
struct PutColumns {
  std::int64_t first = 0;
  std::int64_t columns = 1;
  bool into = false;
  PLIMSOLL_OP("put_columns") {
    visit("first", self.first);
    visit("columns", self.columns);
    visit("into", self.into);
  }
  bool operator==(const PutColumns&) const = default;
};

// ---- dropout.cpp

// (x (B, ..), samples (B), scalars) -> x * kept / (1 - rate). Element e of sample n is kept by word e%4 of
// philox({e/4, samples[n], step, e/4 >> 32}, random_key(seed, site)) >= rate * 2^32. Its own adjoint.
// Where ranks share out the rows of a micro-batch, x (rows here, C) starts at row `first_row` of all, and a sample has `sample_rows`
// rows (0: x is whole); so it is in Residual and Norm.
struct Dropout {
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_row = 0;
  std::int64_t sample_rows = 0;
  PLIMSOLL_OP("dropout") {
    visit("rate", self.rate);
    visit("site", self.site);
    visit("first_row", self.first_row);
    visit("sample_rows", self.sample_rows);
  }
  bool operator==(const Dropout&) const = default;
};

// (x, r) -> x + r; with rate > 0 (x, r, samples, scalars) -> x + dropout(r).
struct Residual {
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_row = 0;
  std::int64_t sample_rows = 0;
  PLIMSOLL_OP("residual") {
    visit("rate", self.rate);
    visit("site", self.site);
    visit("first_row", self.first_row);
    visit("sample_rows", self.sample_rows);
  }
  bool operator==(const Residual&) const = default;
};

// ---- norm.cpp

// (x, weight, [bias]) -> (y, stats (rows, 2) f32: mean and 1/deviation; for rms the mean is 0).
// With residual: (x, r, weight, [bias], [samples, scalars]) -> (sum, y, stats), sum = x + dropout(r).
struct Norm {
  NormKind kind = NormKind::layer;
  double eps = 1e-5;
  bool bias = false;
  bool residual = false;
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_row = 0;
  std::int64_t sample_rows = 0;
  PLIMSOLL_OP("norm") {
    visit("kind", self.kind);
    visit("eps", self.eps);
    visit("bias", self.bias);
    visit("residual", self.residual);
    visit("rate", self.rate);
    visit("site", self.site);
    visit("first_row", self.first_row);
    visit("sample_rows", self.sample_rows);
  }
  bool operator==(const Norm&) const = default;
};

// (dy, x, weight, stats, [dsum]) -> (dx, dweight, [dbias]); x is what was normalised, dsum a gradient of x from
// elsewhere that dx includes.
struct NormGrad {
  NormKind kind = NormKind::layer;
  bool bias = false;
  bool has_dsum = false;
  base::DType dtype = base::DType::f32;  // of the weight gradients
  bool accumulate = false;
  PLIMSOLL_OP("norm_grad") {
    visit("kind", self.kind);
    visit("bias", self.bias);
    visit("has_dsum", self.has_dsum);
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const NormGrad&) const = default;
};

// (packed, weight_q (D), weight_k (D)) -> (packed with every query and key head RMS-normalised, stats (rows, H+G) f32:
// 1/deviation, query heads first).
struct QkNorm {
  Heads heads;
  double eps = 1e-6;
  PLIMSOLL_OP("qk_norm") {
    visit("heads", self.heads);
    visit("eps", self.eps);
  }
  bool operator==(const QkNorm&) const = default;
};

// (dpacked, packed before the norm, weight_q, weight_k, stats) -> (dpacked, dweight_q, dweight_k).
struct QkNormGrad {
  Heads heads;
  base::DType dtype = base::DType::f32;
  bool accumulate = false;
  PLIMSOLL_OP("qk_norm_grad") {
    visit("heads", self.heads);
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const QkNormGrad&) const = default;
};

// ---- rope.cpp

// (packed, positions (B, T) i32, table (context, D) f32: D/2 cosines then D/2 sines) -> packed with query and key
// heads rotated, dims d and d + D/2 as a pair. inverse rotates back: the adjoint.
struct Rope {
  Heads heads;
  bool inverse = false;
  PLIMSOLL_OP("rope") {
    visit("heads", self.heads);
    visit("inverse", self.inverse);
  }
  bool operator==(const Rope&) const = default;
};

// ---- attention.cpp

// (packed (B, T, (H+2G)*D), [segments (B, T) i32], [samples (B), scalars]) -> (out (B, T, H*D), lse (B, H, T) f32).
// Query i sees key j if not causal or j <= i; if window > 0, j > i - window; if segmented, segments equal and >= 0.
// A query that sees nothing gives zeros (lse = -inf). Scores are scaled by D^-1/2. With rate > 0 probabilities are
// dropped as in Dropout, element ((first_head + head)*T + i)*T + j of the sample.
struct Attention {
  Heads heads;
  bool causal = true;
  std::int64_t window = 0;
  bool segmented = false;
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_head = 0;  // of all ranks' query heads
  PLIMSOLL_OP("attention") {
    visit("first_head", self.first_head);
    visit("heads", self.heads);
    visit("causal", self.causal);
    visit("window", self.window);
    visit("segmented", self.segmented);
    visit("rate", self.rate);
    visit("site", self.site);
  }
  bool operator==(const Attention&) const = default;
};

// (dout, packed, out, lse, [segments], [samples, scalars]) -> dpacked.
struct AttentionGrad {
  Attention forward;
  PLIMSOLL_OP("attention_grad") { Attention::fields(self.forward, visit); }
  bool operator==(const AttentionGrad&) const = default;
};

// Attention over all positions so far, for generating text token by token. (packed (B, T, (H+2G)*D), positions (B, T) i32,
// cache (B, 2G, S, D)) -> (out (B, T, H*D), cache in place). For each key-value head in turn the cache holds its S keys,
// then its S values. First the key and value of every row go to slot positions[row], later rows over earlier ones;
// then each query sees the slots j <= its position and, if window > 0, j > position - window. Positions are in [0, S).
struct CachedAttention {
  Heads heads;
  std::int64_t window = 0;
  PLIMSOLL_OP("cached_attention") {
    visit("heads", self.heads);
    visit("window", self.window);
  }
  bool operator==(const CachedAttention&) const = default;
};

// ---- loss.cpp

// (logits (.., V), targets (..) i32) -> (losses (rows) f32, lse (rows) f32). A target < 0 is not counted: loss 0.
struct CrossEntropy {
  PLIMSOLL_OP("cross_entropy") {}
  bool operator==(const CrossEntropy&) const = default;
};

// The same over a vocabulary that ranks share: each makes (logits (.., V here), targets) -> (rows, 2) f32, the log-sum-exp of
// its logits and the target's logit (0 where that is elsewhere), and all of them of everybody's (members * rows * 2), targets
// -> (losses, lse).
struct CrossEntropyPart {
  PLIMSOLL_OP("cross_entropy_part") {}
  bool operator==(const CrossEntropyPart&) const = default;
};

struct CrossEntropyMerge {
  std::int64_t members = 1;
  PLIMSOLL_OP("cross_entropy_merge") { visit("members", self.members); }
  bool operator==(const CrossEntropyMerge&) const = default;
};

// (logits, targets, lse, scalars) -> dlogits = (softmax - onehot) * loss_scale * inverse_tokens, 0 where not counted. A target
// of kElsewhere counts, but its one is in another rank's part.
struct CrossEntropyGrad {
  PLIMSOLL_OP("cross_entropy_grad") {}
  bool operator==(const CrossEntropyGrad&) const = default;
};

// Linear head and cross-entropy in one pass over chunks of the vocabulary or of rows; the logits never exist whole.
// (x (.., C), w (V, C), [bias (V)], targets, scalars) -> (losses (rows) f32); with gradients
// -> (losses, dx, dw, [dbias]).
struct HeadLoss {
  bool bias = false;
  bool gradients = false;
  base::DType dtype = base::DType::f32;  // of dw and dbias
  bool accumulate = false;
  PLIMSOLL_OP("head_loss") {
    visit("bias", self.bias);
    visit("gradients", self.gradients);
    visit("dtype", self.dtype);
    visit("accumulate", self.accumulate);
  }
  bool operator==(const HeadLoss&) const = default;
};

// ---- optim/scalars.cpp: each (scalars, ...) -> scalars, in place

// (scalars) : forgets the last step's sums and verdict.
struct BeginStep {
  PLIMSOLL_OP("begin_step") {}
  bool operator==(const BeginStep&) const = default;
};

// (scalars, losses (n) f32) : adds the losses to scalars.loss, by kSumBlock blocks.
struct SumLoss {
  PLIMSOLL_OP("sum_loss") {}
  bool operator==(const SumLoss&) const = default;
};

// (scalars, gradient) : adds the squares to scalars.squared_norm, by kSumBlock blocks. counted >= 0: of the whole gradient only the
// first `counted` elements count here, the others are another rank's to count; where the gradient is a shard of `shard` elements,
// it begins at element (place on data_inner) * shard.
struct SquaredNorm {
  std::int64_t counted = -1;
  std::int64_t shard = 0;
  PLIMSOLL_OP("squared_norm") {
    visit("counted", self.counted);
    visit("shard", self.shard);
  }
  bool operator==(const SquaredNorm&) const = default;
};

// (scalars) : the barrier of design 3.6. Norm, verdict, multiplier; clip 0 = off. Without check_finite a non-finite
// gradient is applied as it is, as without loss scaling in other systems.
struct PrepareUpdate {
  double clip = 0.0;
  bool check_finite = false;
  PLIMSOLL_OP("prepare_update") {
    visit("clip", self.clip);
    visit("check_finite", self.check_finite);
  }
  bool operator==(const PrepareUpdate&) const = default;
};

// (scalars) : counts the update; with dynamic loss scaling halves the scale after `hysteresis` overflows (not under
// minimum) and doubles it after `window` good steps.
struct FinishStep {
  bool dynamic = false;
  std::int64_t window = 1000;
  std::int64_t hysteresis = 2;
  double minimum = 1.0;
  PLIMSOLL_OP("finish_step") {
    visit("dynamic", self.dynamic);
    visit("window", self.window);
    visit("hysteresis", self.hysteresis);
    visit("minimum", self.minimum);
  }
  bool operator==(const FinishStep&) const = default;
};

// ---- optim/update.cpp

// Updates work in f32. A weight or state that is stored in bf16 is widened before and rounded at random after, up or down with the odds
// that make its mean the unrounded value; `split` gives a bf16 weight the lower half of its f32 bits (ops/state_forms.h).

// (scalars, gradient, weight, m, v, [low u16], [copy]) -> (weight, m, v, [low], [copy]), in place. With t = updates + 1 and
// g = gradient * gradient_multiplier (+ weight_decay * weight unless decoupled):
//   m = beta1 m + (1-beta1) g;  v = beta2 v + (1-beta2) g^2
//   weight -= lr * (m / (1-beta1^t) / (sqrt(v / (1-beta2^t)) + eps) + weight_decay * weight if decoupled)
// copy is the weight in the element type the model computes with. Nothing is written when scalars.skip.
struct AdamUpdate {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;
  bool copy = false;
  bool split = false;
  PLIMSOLL_OP("adam_update") {
    visit("beta1", self.beta1);
    visit("beta2", self.beta2);
    visit("eps", self.eps);
    visit("weight_decay", self.weight_decay);
    visit("decoupled", self.decoupled);
    visit("copy", self.copy);
    visit("split", self.split);
  }
  bool operator==(const AdamUpdate&) const = default;
};

// (scalars, gradient, weight, [velocity], [copy]) -> (weight, [velocity], [copy]), in place. With
// g = gradient * gradient_multiplier + weight_decay * weight: momentum != 0: velocity = momentum velocity + g,
// weight -= lr velocity; else weight -= lr g.
struct SgdUpdate {
  double momentum = 0.0;
  double weight_decay = 0.0;
  bool copy = false;
  PLIMSOLL_OP("sgd_update") {
    visit("momentum", self.momentum);
    visit("weight_decay", self.weight_decay);
    visit("copy", self.copy);
  }
  bool operator==(const SgdUpdate&) const = default;
};

// () -> scalars of a step that has not begun: a second block for sums.
struct FreshScalars {
  PLIMSOLL_OP("fresh_scalars") {}
  bool operator==(const FreshScalars&) const = default;
};

// (scalars, everybody's scalars (members * bytes)) -> scalars: the losses, and with `norm` the squares, of all together. With
// `add` the squares of all are added to those of the first operand instead, and its losses stay.
struct MergeScalars {
  std::int64_t members = 1;
  bool norm = false;
  bool add = false;
  PLIMSOLL_OP("merge_scalars") {
    visit("members", self.members);
    visit("norm", self.norm);
    visit("add", self.add);
  }
  bool operator==(const MergeScalars&) const = default;
};

// ---- collective.cpp: what moves data between ranks, and the views of memory it needs

// (x_0, x_1, ..) -> (y_0, y_1, ..): one bucket of tensors, moved together over the ranks of an axis. all_reduce sums in
// the canonical order (a left fold by rank), in place; reduce_scatter and all_gather take and give flat tensors whose
// extents are multiples of `members`, in place if told: the smaller is then this rank's shard of the larger. With rows > 0 they
// take and give the rows of matrices instead: `rows` in all, dealt out like the units of a placement, those of `place` here.
// With first > 0 an all_reduce leaves the elements before `first` alone.
// reduce sums to the first rank, broadcast copies from it: together the form with one main device.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Axis axis = Axis::data;
  std::int64_t members = 1;
  std::int64_t tensors = 1;
  bool in_place = false;
  std::int64_t rows = 0;
  std::int64_t place = 0;
  std::int64_t first = 0;
  PLIMSOLL_OP("collective") {
    visit("kind", self.kind);
    visit("axis", self.axis);
    visit("members", self.members);
    visit("tensors", self.tensors);
    visit("in_place", self.in_place);
    visit("rows", self.rows);
    visit("place", self.place);
    visit("first", self.first);
  }
  bool operator==(const Collective&) const = default;
};

// (x) -> (), to another place of the pipe axis; or () -> x from there. `tag` tells messages between the same two places apart. What
// is sent has the message's shape and may be a stretch of x that begins with its element `first`. Where places of the pipe axis have
// tensor axes of their own, `seat` is the place on the other's.
struct Message {
  bool receive = false;
  std::int64_t peer = 0;
  std::int64_t tag = 0;
  base::DType dtype = base::DType::f32;
  base::Shape shape{1};
  std::int64_t first = 0;
  std::int64_t seat = 0;
  PLIMSOLL_OP("message") {
    visit("receive", self.receive);
    visit("peer", self.peer);
    visit("tag", self.tag);
    visit("dtype", self.dtype);
    visit("shape", self.shape);
    visit("first", self.first);
    visit("seat", self.seat);
  }
  bool operator==(const Message&) const = default;
};

// (x, [target]) -> x in another tier: in memory of its own, or (`into`) in that of a target there. Tiers are neighbours: what
// goes from the device to the disk goes through the host's memory.
struct Move {
  Tier from = Tier::device;
  Tier to = Tier::host;
  bool into = false;
  PLIMSOLL_OP("move") {
    visit("from", self.from);
    visit("to", self.to);
    visit("into", self.into);
  }
  bool operator==(const Move&) const = default;
};

// Rows of tables on disk, and the same rows of tensors in the host's memory, for tables that are too large to come whole. Bringing them,
// (ids (n), table_0 (R, C), table_1, ..) -> (rows_0 (n, C), rows_1, ..); with `back`,
// (ids (n), rows_0, rows_1, .., table_0, table_1, ..) -> (table_0, table_1, ..), in place. The first negative id ends the list: what is
// behind it is left as it was. Ids are all different.
struct MoveRows {
  std::int64_t tables = 1;
  bool back = false;
  PLIMSOLL_OP("move_rows") {
    visit("tables", self.tables);
    visit("back", self.back);
  }
  bool operator==(const MoveRows&) const = default;
};

// (x) -> the same memory with another shape. A larger one ends in padding, which is not written.
struct View {
  base::Shape shape{1};
  PLIMSOLL_OP("view") { visit("shape", self.shape); }
  bool operator==(const View&) const = default;
};

// (x) -> `count` elements of the same memory from element `first` on, as a flat tensor.
struct Slice {
  std::int64_t first = 0;
  std::int64_t count = 1;
  PLIMSOLL_OP("slice") {
    visit("first", self.first);
    visit("count", self.count);
  }
  bool operator==(const Slice&) const = default;
};

// (x (n)) -> this rank's part (n / members) of the same memory, by its place on data_inner.
struct OwnShard {
  std::int64_t members = 1;
  PLIMSOLL_OP("own_shard") { visit("members", self.members); }
  bool operator==(const OwnShard&) const = default;
};

// (x (n)) -> x with zeros from element `valid` on, in place.
struct Pad {
  std::int64_t valid = 0;
  PLIMSOLL_OP("pad") { visit("valid", self.valid); }
  bool operator==(const Pad&) const = default;
};

// (x) -> a copy that later micro-batches add to: accumulating, (x, sum) -> sum + x.
struct Accumulate {
  bool accumulate = false;
  PLIMSOLL_OP("accumulate") { visit("accumulate", self.accumulate); }
  bool operator==(const Accumulate&) const = default;
};

#undef PLIMSOLL_OP

}  // namespace plimsoll::ops
