// Products of 8-bit operands.
#pragma once

#include "ops/attributes.h"

namespace plimsoll::ops {

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

}  // namespace plimsoll::ops
