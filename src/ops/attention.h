// Attention.
#pragma once

#include "ops/attributes.h"
#include "ops/masks/mask.h"

namespace plimsoll::ops {

// (packed (B, T, (H+2G)*D), [segments (B, T) i32], [samples (B), scalars]) -> (out (B, T, H*D), lse (B, H, T) f32).
// Query i sees key j if not causal or j <= i; if window > 0, j > i - window; if there is a pattern, its rule says so (masks/mask.h); if
// segmented, segments equal and >= 0. A query that sees nothing gives zeros (lse = -inf). Scores are scaled by D^-1/2. With rate > 0
// probabilities are dropped as in Dropout, element ((first_head + head)*T + i)*T + j of the sample.
//
// With `separate`, queries, keys and values are operands of their own, which may be parts of a sequence: (queries (B, Q, H*D), keys
// (B, K, G*D), values (B, K, G*D), [segments of queries (B, Q), of keys (B, K)], [samples, scalars]) -> (out (B, Q, H*D), lse (B, H, Q)).
// Query i has the position first_query + i*stride, key j first_key + j*stride: masks and dropout, whose T is `length`, go by these. What
// parts of the keys give is put together by merge_attention.
struct Attention {
  Heads heads;
  bool causal = true;
  std::int64_t window = 0;
  bool segmented = false;
  double rate = 0.0;
  std::uint64_t site = 0;
  std::int64_t first_head = 0;  // of all ranks' query heads
  MaskPattern pattern{};
  bool separate = false;
  std::int64_t first_query = 0;
  std::int64_t first_key = 0;
  std::int64_t stride = 1;
  std::int64_t length = 0;  // of the whole sequence; only dropout asks
  PLIMSOLL_OP("attention") {
    visit("first_head", self.first_head);
    visit("heads", self.heads);
    visit("causal", self.causal);
    visit("window", self.window);
    visit("segmented", self.segmented);
    visit("rate", self.rate);
    visit("site", self.site);
    visit("pattern", self.pattern);
    visit("separate", self.separate);
    visit("first_query", self.first_query);
    visit("first_key", self.first_key);
    visit("stride", self.stride);
    visit("length", self.length);
  }

  Mask mask() const { return {mask_band(causal, window), pattern}; }
  static Band mask_band(bool causal, std::int64_t window) {
    return {causal ? 0 : -kEndless, window > 0 ? std::min(window, kEndless) : kEndless};
  }
  Stretch queries(std::int64_t count) const { return {first_query, count, stride}; }
  Stretch keys(std::int64_t count) const { return {first_key, count, stride}; }
  // The band by rows of the operands.
  Band band_of_rows() const { return ops::band_of_rows(mask_band(causal, window), first_query - first_key, stride); }

  // Among the operands, behind `first`: queries, keys and values, and what is behind these.
  std::size_t key_operand() const { return separate ? 1 : 0; }
  std::size_t value_operand() const { return separate ? 2 : 0; }
  std::size_t tensors() const { return separate ? 3 : 1; }
  bool operator==(const Attention&) const = default;
};

// (dout, packed, out, lse, [segments], [samples, scalars]) -> dpacked; separate: (dout, queries, keys, values, out, lse, [dlse], ...) ->
// (dqueries, dkeys, dvalues). With `of_lse` a gradient of lse arrived too. Where the keys are a part of all, out and lse may be those of
// all keys: then the results are this part's share of the whole gradient.
struct AttentionGrad {
  Attention forward;
  bool of_lse = false;
  PLIMSOLL_OP("attention_grad") {
    Attention::fields(self.forward, visit);
    visit("of_lse", self.of_lse);
  }
  // Where the operands have out, which lse follows, and what is behind these.
  std::size_t out_operand() const { return 1 + forward.tensors(); }
  std::size_t masks() const { return out_operand() + (of_lse ? 3 : 2); }
  bool operator==(const AttentionGrad&) const = default;
};

// The adjoint of attention_grad: (gradient of its dpacked, dout, packed, out, lse, [segments], [samples, scalars]) -> (ddout, dpacked).
struct AttentionGradGrad {
  Attention forward;
  PLIMSOLL_OP("attention_grad_grad") { Attention::fields(self.forward, visit); }
  bool operator==(const AttentionGradGrad&) const = default;
};

// The attention of queries over two sets of keys from that over each: (out_a (B, T, H*D), lse_a (B, H, T) f32, out_b, lse_b) -> (out,
// lse), of the types of the first two, which may be wider than those of the others: lse = log(exp lse_a + exp lse_b) and
// out = sum of exp(lse_x - lse) out_x. What saw nothing in both is zeros, and -inf.
struct MergeAttention {
  PLIMSOLL_OP("merge_attention") {}
  bool operator==(const MergeAttention&) const = default;
};

// (dout, [dlse], out_a, lse_a, out_b, lse_b) -> (dout_a, dlse_a, dout_b, dlse_b).
struct MergeAttentionGrad {
  bool of_lse = false;
  PLIMSOLL_OP("merge_attention_grad") { visit("of_lse", self.of_lse); }
  bool operator==(const MergeAttentionGrad&) const = default;
};

// Attention over all positions so far, for generating text token by token. (packed (B, T, (H+2G)*D), positions (B, T) i32,
// cache (B, 2G, S, D)) -> (out (B, T, H*D), cache in place). For each key-value head in turn the cache holds its S keys,
// then its S values. First the key and value of every row go to slot positions[row], later rows over earlier ones;
// then each query sees the slots j <= its position, if window > 0, j > position - window, and if there is a pattern, what its rule says.
// Positions are in [0, S).
struct CachedAttention {
  Heads heads;
  std::int64_t window = 0;
  MaskPattern pattern{};
  std::int64_t first_head = 0;  // of all ranks' query heads; only a pattern asks
  PLIMSOLL_OP("cached_attention") {
    visit("heads", self.heads);
    visit("window", self.window);
    visit("pattern", self.pattern);
    visit("first_head", self.first_head);
  }
  Mask mask() const { return {Attention::mask_band(true, window), pattern}; }
  bool operator==(const CachedAttention&) const = default;
};

}  // namespace plimsoll::ops
