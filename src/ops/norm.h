// Normalisation.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

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

// The adjoint of norm_grad, but for its bias and dsum, through which gradients pass as they are:
// (dy, x, weight, stats, [gradient of dx], [gradient of dweight]) -> (ddy, dx, dweight).
struct NormGradGrad {
  NormKind kind = NormKind::layer;
  bool input = false;                    // a gradient of dx is there,
  bool weight = false;                   // and one of dweight
  base::DType dtype = base::DType::f32;  // of dweight
  PLIMSOLL_OP("norm_grad_grad") {
    visit("kind", self.kind);
    visit("input", self.input);
    visit("weight", self.weight);
    visit("dtype", self.dtype);
  }
  bool operator==(const NormGradGrad&) const = default;
};

// The adjoint of qk_norm_grad: (dpacked, packed, weight_q, weight_k, stats, [gradient of its dpacked], [of dweight_q], [of dweight_k])
// -> (ddpacked, dpacked, dweight_q, dweight_k).
struct QkNormGradGrad {
  Heads heads;
  bool input = false;
  bool query = false;
  bool key = false;
  base::DType dtype = base::DType::f32;
  PLIMSOLL_OP("qk_norm_grad_grad") {
    visit("heads", self.heads);
    visit("input", self.input);
    visit("query", self.query);
    visit("key", self.key);
    visit("dtype", self.dtype);
  }
  bool operator==(const QkNormGradGrad&) const = default;
};

}  // namespace plimsoll::ops
