// Sums of parts, and feedback of what a codec lost.
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

bool is_f32(const TensorType& type) { return type.dtype == DType::f32; }
bool begins_with_scalars(Types inputs, std::size_t count) { return inputs.size() == count && inputs[0] == step_scalars_type(); }

std::vector<TensorType> infer_add_error(const Op& op, Types inputs) {
  expect(begins_with_scalars(inputs, 3) && base::is_float(inputs[1].dtype) && is_f32(inputs[2]) &&
             inputs[1].shape.elements() >= inputs[2].shape.elements(),
         op, inputs, "scalars, x, and an error in f32 with at most as many elements");
  return {{DType::f32, inputs[1].shape}};
}

std::vector<TensorType> infer_keep_error(const Op& op, Types inputs) {
  expect(begins_with_scalars(inputs, 4) && is_f32(inputs[1]) && is_f32(inputs[2]) && is_f32(inputs[3]), op, inputs,
         "scalars, z, y and an error in f32");
  const std::int64_t elements = inputs[3].shape.elements();
  expect(inputs[1].shape.elements() >= elements && inputs[2].shape.elements() >= elements, op, inputs, "as many elements as the error has");
  return {inputs[3]};
}

std::vector<TensorType> infer_undo_skipped(const Op& op, Types inputs) {
  expect(begins_with_scalars(inputs, 3) && is_f32(inputs[1]) && inputs[1] == inputs[2], op, inputs, "scalars, and a state in f32 twice");
  return {inputs[1]};
}

std::vector<TensorType> infer_sum_parts(const Op& op, Types inputs) {
  const auto& [members, dtype] = std::get<SumParts>(op);
  expect(inputs.size() == 1 && base::is_float(inputs[0].dtype) && base::is_float(dtype) && members > 0 &&
             inputs[0].shape.elements() % members == 0,
         op, inputs, "floats that the number of parts divides");
  return {{dtype, Shape{inputs[0].shape.elements() / members}}};
}

template <int kState>
std::vector<Alias> writes_state(const Op&) {
  return {{.output = 0, .input = kState, .required = true}};
}

}  // namespace

Definition define(const AddError&) { return {.infer = infer_add_error, .work = elementwise_work<2>, .no_adjoint = kMadeByLowering}; }

Definition define(const KeepError&) {
  return {.infer = infer_keep_error, .work = elementwise_work<2>, .no_adjoint = kMadeByLowering, .aliases = writes_state<3>};
}

Definition define(const UndoSkipped&) {
  return {.infer = infer_undo_skipped, .work = elementwise_work<1>, .no_adjoint = kMadeByLowering, .aliases = writes_state<1>};
}

Definition define(const SumParts&) {
  return {.infer = infer_sum_parts,
          .work = [](const Op&, Types inputs,
                     Types outputs) { return Work{static_cast<double>(inputs[0].shape.elements()), bytes_of(inputs, outputs)}; },
          .no_adjoint = kMadeByLowering};
}

}  // namespace plimsoll::ops
