// Encoding and decoding. What is stored is cut where tensors are, but never within a record.
#include "base/error.h"
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

static_assert(kSumBlock % kMostBlock == 0, "a record would be in two shards");

std::vector<TensorType> infer_encode(const Op& op, Types inputs) {
  expect(inputs.size() == 1 && base::is_float(inputs[0].dtype) && inputs[0].shape.rank() >= 1, op, inputs, "a float tensor");
  return {stored_type(*std::get<Encode>(op).form, inputs[0].shape)};
}

std::vector<TensorType> infer_decode(const Op& op, Types inputs) {
  const auto& decode = std::get<Decode>(op);
  expect(base::is_float(decode.dtype), op, inputs, "a float type to decode to");
  expect(inputs.size() == 1 && inputs[0].dtype == DType::u8 && inputs[0].shape.rank() >= 1 && decode.columns > 0 &&
             inputs[0].shape[-1] == decode.form->bytes(decode.columns),
         op, inputs, fmt::format("rows of {} bytes", decode.form->bytes(std::max<std::int64_t>(1, decode.columns))));
  Shape shape = inputs[0].shape;
  shape.set(-1, decode.columns);
  return {{decode.dtype, shape}};
}

// A scale for each block, and a division for each element.
Work encode_work(const Op&, Types inputs, Types outputs) {
  return {3.0 * static_cast<double>(inputs[0].shape.elements()), bytes_of(inputs, outputs)};
}

// Rows may be dealt out as they are.
PlacedOp place_encode(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  const Placement& given = query.inputs[0];
  if (given.spread == Spread::rows || (given.spread == Spread::split && !last_is_split(query, 0)))
    placed.inputs[0] = placed.outputs[0] = given;
  return placed;
}

// Rows as they are; of a row, whole records, which must be the columns that whoever reads the elements has.
PlacedOp place_decode(const PlacementQuery& query) {
  auto op = std::get<Decode>(query.op);
  PlacedOp placed = place_whole(query, 1);
  const Placement& given = query.inputs[0];
  if (given.spread != Spread::split && given.spread != Spread::rows) return placed;
  placed.inputs[0] = placed.outputs[0] = given;
  if (!last_is_split(query, 0)) return placed;
  const FormInfo& info = *op.form;
  Placement columns = given;
  if (op.units > 0) {
    columns.units = op.units;
    columns.own = op.own;
  }
  const Dealt bytes = dealt(given, query.seat, query.types[0].shape[-1]);
  const Dealt here = can_be_dealt(columns, query.seat.members) ? dealt(columns, query.seat, op.columns) : Dealt{};
  if (bytes.begin / info.record * info.block != here.begin || bytes.count / info.record * info.block != here.count) {
    base::not_legal(
        "\"tensor\" is {}, which cuts {} columns of a weight stored as {} within a block of {}: use a smaller \"tensor\", or do not store "
        "the frozen weights in a form",
        query.seat.members, op.columns, info.name, info.block);
  }
  op.columns = here.count;
  op.units = op.own = 0;
  placed.op = op;
  placed.outputs[0] = columns;
  return placed;
}

constexpr std::string_view kCodes = "codes are not numbers that a gradient could change; weights in a stored form are frozen";

}  // namespace

Definition define(const Encode&) { return {.infer = infer_encode, .work = encode_work, .no_adjoint = kCodes, .place = place_encode}; }

Definition define(const Decode&) {
  return {.infer = infer_decode,
          .work = [](const Op&, Types inputs,
                     Types outputs) { return Work{static_cast<double>(outputs[0].shape.elements()), bytes_of(inputs, outputs)}; },
          .no_adjoint = kCodes,
          .place = place_decode};
}

}  // namespace plimsoll::ops
