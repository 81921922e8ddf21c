// linear and its gradients.
#include "kernels/cpu/reference/activation.h"
#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

Results compute(const ops::Linear& op, Operands operands) {
  const RefTensor& x = tensor(operands[0]);
  const RefTensor& w = tensor(operands[1]);
  RefTensor pre(with_last(x.shape, w.rows()));
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t n = 0; n < w.rows(); ++n) {
      double sum = op.bias ? tensor(operands[2])[n] : 0.0;
      for (std::int64_t k = 0; k < w.columns(); ++k) sum += x.at(row, k) * w.at(n, k);
      pre.at(row, n) = sum;
    }
  }
  if (op.activation == ops::ActivationKind::none) return {std::move(pre)};
  RefTensor y = pre;
  for (double& value : y.values) value = activation(op.activation, value);
  return {std::move(y), std::move(pre)};
}

Results compute(const ops::LinearGradInput& op, Operands operands) {
  const RefTensor& dy = tensor(operands[0]);
  const RefTensor& w = tensor(operands[1]);
  RefTensor dx(with_last(dy.shape, w.columns()));
  for (std::int64_t row = 0; row < dy.rows(); ++row) {
    for (std::int64_t n = 0; n < w.rows(); ++n) {
      for (std::int64_t k = 0; k < w.columns(); ++k) dx.at(row, k) += dy.at(row, n) * w.at(n, k);
    }
  }
  if (op.activation != ops::ActivationKind::none) {
    const RefTensor& pre = tensor(operands[2]);
    for (std::int64_t e = 0; e < dx.elements(); ++e) dx[e] *= activation_slope(op.activation, pre[e]);
  }
  return {std::move(dx)};
}

Results compute(const ops::LinearGradWeight& op, Operands operands) {
  const RefTensor& dy = tensor(operands[0]);
  const RefTensor& x = tensor(operands[1]);
  RefTensor dw(base::Shape{dy.columns(), x.columns()});
  for (std::int64_t row = 0; row < dy.rows(); ++row) {
    for (std::int64_t n = 0; n < dy.columns(); ++n) {
      for (std::int64_t k = 0; k < x.columns(); ++k) dw.at(n, k) += dy.at(row, n) * x.at(row, k);
    }
  }
  if (op.accumulate) add_to(dw, tensor(operands[2]));
  return {std::move(dw)};
}

Results compute(const ops::BiasGrad& op, Operands operands) {
  const RefTensor& dy = tensor(operands[0]);
  RefTensor db(base::Shape{dy.columns()});
  for (std::int64_t row = 0; row < dy.rows(); ++row) {
    for (std::int64_t n = 0; n < dy.columns(); ++n) db[n] += dy.at(row, n);
  }
  if (op.accumulate) add_to(db, tensor(operands[1]));
  return {std::move(db)};
}

Results compute(const ops::RepeatRows& op, Operands operands) {
  const RefTensor& row = tensor(operands[0]);
  RefTensor y(op.shape);
  for (std::int64_t e = 0; e < y.elements(); ++e) y[e] = row[e % row.elements()];
  return {std::move(y)};
}

}  // namespace plimsoll::kernels::cpu::reference
