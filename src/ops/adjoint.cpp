// What many adjoints are written with.
#include "base/error.h"
#include "ops/families.h"

namespace plimsoll::ops {

ValueId as_type(AdjointBuilder& build, ValueId value, const TensorType& type) {
  if (!value.valid()) return value;
  if (build.type(value).shape != type.shape) value = build.emit(View{.shape = type.shape}, {value})[0];
  if (build.type(value).dtype != type.dtype) value = build.emit(Cast{.dtype = type.dtype}, {value})[0];
  return value;
}

ValueId sum_of(AdjointBuilder& build, ValueId a, ValueId b) {
  if (!a.valid() || !b.valid()) return a.valid() ? a : b;
  return build.emit(Add{}, {a, b})[0];
}

void expect_no_gradient(const AdjointSite& site, std::size_t output, std::string_view what) {
  if (!site.output_grads[output].valid()) return;
  base::not_legal("[{}] a gradient arrived at {}, which only the backward pass reads; differentiate what the operator gives besides",
                  name_of(site.op), what);
}

}  // namespace plimsoll::ops
