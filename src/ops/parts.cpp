#include "ops/parts.h"

#include "ops/families.h"

namespace plimsoll::ops {

namespace {

bool lies_in(const PartOfDim& part, const Shape& shape) {
  return part.dim >= 0 && part.dim < shape.rank() && part.begin >= 0 && part.count >= 0 && part.begin <= part.extent - part.count &&
         part.tail >= 0 && part.tail_begin >= 0 && part.tail_begin <= part.extent - part.tail;
}

std::vector<TensorType> infer_put_part(const Op& op, Types inputs) {
  const auto& put = std::get<PutPart>(op);
  expect(inputs.size() == (put.into ? 2u : 1u) && lies_in(put.part, inputs[0].shape) &&
             inputs[0].shape[put.part.dim] == put.part.count + put.part.tail,
         op, inputs, "a part that lies in the whole, and with `into` the whole");
  TensorType whole = inputs[0];
  whole.shape.set(put.part.dim, put.part.extent);
  if (put.into) expect(inputs[1] == whole, op, inputs, "a whole of the result's type");
  return {whole};
}

std::vector<TensorType> infer_take_part(const Op& op, Types inputs) {
  const PartOfDim& part = std::get<TakePart>(op).part;
  expect(inputs.size() == 1 && lies_in(part, inputs[0].shape) && inputs[0].shape[part.dim] == part.extent, op, inputs,
         "a whole that has the part");
  TensorType taken = inputs[0];
  taken.shape.set(part.dim, part.count + part.tail);
  return {taken};
}

// Where the tail is put by somebody else, it is not in the whole.
std::optional<Inverse> inverse_put_part(const Op& op, std::size_t input, Types) {
  const auto& put = std::get<PutPart>(op);
  if (input != 0 || (put.without_tail && put.part.tail > 0)) return std::nullopt;
  return Inverse{.op = TakePart{.part = put.part}, .inputs = {{.output = true}}, .exact = true};
}

std::vector<Alias> whole_in_place(const Op& op) {
  if (!std::get<PutPart>(op).into) return {};
  return {{.output = 0, .input = 1, .required = true}};
}

}  // namespace

Definition define(const PutPart&) {
  return {.infer = infer_put_part,
          .work =
              [](const Op& op, Types inputs, Types outputs) {
                const bool into = std::get<PutPart>(op).into;
                return Work{0.0, static_cast<double>(inputs[0].bytes() + (into ? inputs[0] : outputs[0]).bytes())};
              },
          .no_adjoint = kMadeByLowering,
          .aliases = whole_in_place,
          .inverse = inverse_put_part};
}

Definition define(const TakePart&) {
  return {.infer = infer_take_part,
          .work = [](const Op&, Types, Types outputs) { return Work{0.0, 2.0 * static_cast<double>(outputs[0].bytes())}; },
          .no_adjoint = kMadeByLowering};
}

}  // namespace plimsoll::ops
