// Losses.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

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
// of kElsewhere counts, but its one is in another rank's part. Weighted: (logits, targets, lse, weights (rows) f32) -> dlogits =
// (softmax - onehot) * weight of the row.
struct CrossEntropyGrad {
  bool weighted = false;
  PLIMSOLL_OP("cross_entropy_grad") { visit("weighted", self.weighted); }
  bool operator==(const CrossEntropyGrad&) const = default;
};

// The adjoint of cross_entropy_grad: (gradient of its dlogits, logits, targets, lse, scalars or weights) -> (dlogits, [dweights (rows)]).
struct CrossEntropyGradGrad {
  bool weighted = false;
  PLIMSOLL_OP("cross_entropy_grad_grad") { visit("weighted", self.weighted); }
  bool operator==(const CrossEntropyGradGrad&) const = default;
};

// (scalars) -> (rows) f32, each factor * loss_scale * inverse_tokens: what the loss of a row counts as one of several.
struct LossWeights {
  std::int64_t rows = 1;
  double factor = 1.0;
  PLIMSOLL_OP("loss_weights") {
    visit("rows", self.rows);
    visit("factor", self.factor);
  }
  bool operator==(const LossWeights&) const = default;
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

}  // namespace plimsoll::ops
