// embed, embed_grad.
#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

std::int64_t checked_id(double value, std::int64_t rows) {
  const std::int64_t id = integer(value);
  PLIMSOLL_CHECK(id >= 0 && id < rows, "id {} of a table of {} rows", id, rows);
  return id;
}

base::Shape with_channels(const base::Shape& ids, std::int64_t channels) {
  std::vector<std::int64_t> dims(ids.dims().begin(), ids.dims().end());
  dims.push_back(channels);
  return base::Shape(dims);
}

}  // namespace

Results compute(const ops::Embed& op, Operands operands) {
  const std::int64_t channels = tensor(operands[1]).columns();
  RefTensor sum(with_channels(tensor(operands[0]).shape, channels));
  Reader in(operands);
  for (std::int64_t n = 0; n < op.tables; ++n) {
    const RefTensor& ids = in.next_tensor();
    const RefTensor& table = in.next_tensor();
    for (std::int64_t position = 0; position < ids.elements(); ++position) {
      if (integer(ids[position]) == ops::kElsewhere) continue;
      const std::int64_t id = checked_id(ids[position], table.rows());
      for (std::int64_t c = 0; c < channels; ++c) sum.at(position, c) += table.at(id, c);
    }
  }
  return {std::move(sum)};
}

Results compute(const ops::EmbedGrad& op, Operands operands) {
  const RefTensor& ids = tensor(operands[0]);
  const RefTensor& dy = tensor(operands[1]);
  RefTensor dtable(base::Shape{op.rows, dy.columns()});
  for (std::int64_t position = 0; position < ids.elements(); ++position) {
    if (integer(ids[position]) == ops::kElsewhere) continue;
    const std::int64_t id = checked_id(ids[position], op.rows);
    for (std::int64_t c = 0; c < dy.columns(); ++c) dtable.at(id, c) += dy.at(position, c);
  }
  if (op.accumulate) add_to(dtable, tensor(operands[2]));
  return {std::move(dtable)};
}

Results compute(const ops::ShiftIds& op, Operands operands) {
  RefTensor ids = tensor(operands[0]);
  for (std::int64_t e = 0; e < ids.elements(); ++e) {
    const std::int64_t id = integer(ids[e]);
    if (id < 0) continue;
    ids[e] = static_cast<double>(id >= op.first && id < op.first + op.rows && id != op.hidden ? id - op.first : ops::kElsewhere);
  }
  return {std::move(ids)};
}

}  // namespace plimsoll::kernels::cpu::reference
