// Tensors to and from the forms in which they are stored (ops/forms).
#pragma once

#include "ops/attributes.h"
#include "ops/forms/form.h"

namespace plimsoll::ops {

// (x (.., N)) -> its records (.., bytes) u8, rounded to nearest.
struct Encode {
  const FormInfo* form = &forms()[0];
  PLIMSOLL_OP("encode") { visit("form", self.form); }
  bool operator==(const Encode&) const = default;
};

// (records (.., bytes) u8) -> the elements (.., columns). Where records are dealt out over the tensor axis, the elements come dealt in
// `units` of the columns (ops/placement.h), with `own` pieces that neighbours may share out; units 0: in the units of the records.
struct Decode {
  const FormInfo* form = &forms()[0];
  std::int64_t columns = 1;
  base::DType dtype = base::DType::f32;
  std::int64_t units = 0;
  std::int64_t own = 0;
  PLIMSOLL_OP("decode") {
    visit("form", self.form);
    visit("columns", self.columns);
    visit("dtype", self.dtype);
    visit("units", self.units);
    visit("own", self.own);
  }
  bool operator==(const Decode&) const = default;
};

}  // namespace plimsoll::ops
