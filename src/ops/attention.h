// Attention.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

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

// The adjoint of attention_grad: (gradient of its dpacked, dout, packed, out, lse, [segments], [samples, scalars]) -> (ddout, dpacked).
struct AttentionGradGrad {
  Attention forward;
  PLIMSOLL_OP("attention_grad_grad") { Attention::fields(self.forward, visit); }
  bool operator==(const AttentionGradGrad&) const = default;
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

}  // namespace plimsoll::ops
