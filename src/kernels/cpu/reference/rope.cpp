// rope: dims d and d + D/2 of every query and key head turned by the angle of (position, d).
#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

void rotate(double* head, std::int64_t half, const double* cosines, const double* sines, double direction) {
  for (std::int64_t d = 0; d < half; ++d) {
    const double a = head[d];
    const double b = head[d + half];
    head[d] = a * cosines[d] - b * direction * sines[d];
    head[d + half] = b * cosines[d] + a * direction * sines[d];
  }
}

}  // namespace

Results compute(const ops::Rope& op, Operands operands) {
  RefTensor packed = tensor(operands[0]);
  const RefTensor& positions = tensor(operands[1]);
  const RefTensor& table = tensor(operands[2]);
  const std::int64_t half = op.heads.dim / 2;
  const double direction = op.inverse ? -1.0 : 1.0;
  for (std::int64_t row = 0; row < packed.rows(); ++row) {
    const std::int64_t position = integer(positions[row]);
    PLIMSOLL_CHECK(position >= 0 && position < table.rows(), "position {} of a table of {}", position, table.rows());
    const double* cosines = &table.values[static_cast<std::size_t>(position * op.heads.dim)];
    for (std::int64_t h = 0; h < op.heads.query; ++h) {
      rotate(&packed.at(row, op.heads.query_offset(h)), half, cosines, cosines + half, direction);
    }
    for (std::int64_t g = 0; g < op.heads.kv; ++g)
      rotate(&packed.at(row, op.heads.key_offset(g)), half, cosines, cosines + half, direction);
  }
  return {std::move(packed)};
}

}  // namespace plimsoll::kernels::cpu::reference
