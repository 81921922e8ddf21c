// norm, qk_norm and their gradients. Both normalise a run of n numbers:
//   mean (layer only), deviation = sqrt(mean square of (x - mean) + eps), xhat = (x - mean) / deviation, y = xhat * w (+ b)
// and with g = dy * w the adjoint is dx = (g - [layer: mean(g)] - xhat * mean(g * xhat)) / deviation.
#include <cmath>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/dropout.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

using ops::NormKind;

struct Stats {
  double mean = 0.0;
  double inverse = 0.0;  // 1 / deviation
};

Stats stats_of(const double* x, std::int64_t n, NormKind kind, double eps) {
  Stats stats;
  if (kind == NormKind::layer) {
    for (std::int64_t i = 0; i < n; ++i) stats.mean += x[i] / static_cast<double>(n);
  }
  double variance = 0.0;
  for (std::int64_t i = 0; i < n; ++i) variance += (x[i] - stats.mean) * (x[i] - stats.mean) / static_cast<double>(n);
  stats.inverse = 1.0 / std::sqrt(variance + eps);
  return stats;
}

void normalise(const double* x, std::int64_t n, const Stats& stats, const double* weight, const double* bias, double* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - stats.mean) * stats.inverse * weight[i] + (bias != nullptr ? bias[i] : 0.0);
}

struct RunGradient {
  double* dx;       // written
  double* dweight;  // added to
  double* dbias;    // added to, or null
};

void normalise_gradient(const double* dy, const double* x, std::int64_t n, NormKind kind, const Stats& stats, const double* weight,
                        const RunGradient& to) {
  double mean_g = 0.0;
  double mean_g_xhat = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double xhat = (x[i] - stats.mean) * stats.inverse;
    const double g = dy[i] * weight[i];
    if (kind == NormKind::layer) mean_g += g / static_cast<double>(n);
    mean_g_xhat += g * xhat / static_cast<double>(n);
    to.dweight[i] += dy[i] * xhat;
    if (to.dbias != nullptr) to.dbias[i] += dy[i];
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const double xhat = (x[i] - stats.mean) * stats.inverse;
    to.dx[i] = (dy[i] * weight[i] - mean_g - xhat * mean_g_xhat) * stats.inverse;
  }
}

struct SecondGradient {
  const double* arrived_dx;       // null: none
  const double* arrived_dweight;  // null: none
  double* ddy;                    // written
  double* dx;                     // written
  double* dweight;                // added to
};

// Let J be the derivative of xhat by x: J u = (u - [mean u] - xhat mean(u xhat)) / deviation, which is symmetric. The gradient made
// dx = J (dy w) and dweight = dy xhat. With a arriving at dx and p at dweight:
//   ddy = w (J a) + p xhat,   dweight = dy (J a),   dx = J (p dy) + the derivative of <a, J g> by x, where g = dy w:
//   -(xhat <a, J g> + (J a) <g, xhat> + (J g) <a, xhat>) / (n deviation).
void normalise_second(const double* dy, const double* x, std::int64_t n, NormKind kind, const Stats& stats, const double* weight,
                      const SecondGradient& to) {
  const auto size = static_cast<std::size_t>(n);
  const double count = static_cast<double>(n);
  std::vector<double> xhat(size);
  for (std::size_t i = 0; i < size; ++i) xhat[i] = (x[i] - stats.mean) * stats.inverse;
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  const auto derivative = [&](const std::vector<double>& u) {
    double mean = 0.0;
    for (const double value : u) mean += kind == NormKind::layer ? value / count : 0.0;
    const double along = dot(u, xhat) / count;
    std::vector<double> result(size);
    for (std::size_t i = 0; i < size; ++i) result[i] = (u[i] - mean - xhat[i] * along) * stats.inverse;
    return result;
  };
  std::vector<double> of_weight(size, 0.0);
  for (std::size_t i = 0; i < size; ++i) {
    to.ddy[i] = to.arrived_dweight != nullptr ? to.arrived_dweight[i] * xhat[i] : 0.0;
    if (to.arrived_dweight != nullptr) of_weight[i] = to.arrived_dweight[i] * dy[i];
  }
  const std::vector<double> from_weight = derivative(of_weight);
  std::copy(from_weight.begin(), from_weight.end(), to.dx);
  if (to.arrived_dx == nullptr) return;
  const std::vector<double> arrived(to.arrived_dx, to.arrived_dx + n);
  std::vector<double> g(size);
  for (std::size_t i = 0; i < size; ++i) g[i] = dy[i] * weight[i];
  const std::vector<double> along_arrived = derivative(arrived);
  const std::vector<double> along_g = derivative(g);
  const double both = dot(arrived, along_g);
  const double g_xhat = dot(g, xhat);
  const double arrived_xhat = dot(arrived, xhat);
  for (std::size_t i = 0; i < size; ++i) {
    to.ddy[i] += weight[i] * along_arrived[i];
    to.dweight[i] += dy[i] * along_arrived[i];
    to.dx[i] -= stats.inverse / count * (xhat[i] * both + along_arrived[i] * g_xhat + along_g[i] * arrived_xhat);
  }
}

// A query or key head in a packed row: where it starts, and which column of the stats is its.
struct HeadAt {
  std::int64_t offset;
  std::int64_t stat;
  bool query;
};

std::vector<HeadAt> normalised_heads(const ops::Heads& heads) {
  std::vector<HeadAt> all;
  for (std::int64_t h = 0; h < heads.query; ++h) all.push_back({heads.query_offset(h), h, true});
  for (std::int64_t g = 0; g < heads.kv; ++g) all.push_back({heads.key_offset(g), heads.query + g, false});
  return all;
}

}  // namespace

Results compute(const ops::Norm& op, Operands operands) {
  Reader in(operands);
  RefTensor sum = in.next_tensor();
  const RefTensor* r = op.residual ? &in.next_tensor() : nullptr;
  const RefTensor& weight = in.next_tensor();
  const RefTensor* bias = op.bias ? &in.next_tensor() : nullptr;
  if (r != nullptr) {
    RefTensor dropped = *r;
    if (op.rate > 0.0) {
      const RefTensor& samples = in.next_tensor();
      DropoutSite(op.rate, op.site, samples, in.next_scalars()).apply(op, dropped);
    }
    add_to(sum, dropped);
  }
  RefTensor y(sum.shape);
  RefTensor stats(base::Shape{sum.rows(), 2});
  for (std::int64_t row = 0; row < sum.rows(); ++row) {
    const Stats of_row = stats_of(&sum.at(row, 0), sum.columns(), op.kind, op.eps);
    normalise(&sum.at(row, 0), sum.columns(), of_row, weight.values.data(), bias != nullptr ? bias->values.data() : nullptr, &y.at(row, 0));
    stats.at(row, 0) = of_row.mean;
    stats.at(row, 1) = of_row.inverse;
  }
  if (op.residual) return {std::move(sum), std::move(y), std::move(stats)};
  return {std::move(y), std::move(stats)};
}

Results compute(const ops::NormGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& dy = in.next_tensor();
  const RefTensor& x = in.next_tensor();
  const RefTensor& weight = in.next_tensor();
  const RefTensor& stats = in.next_tensor();
  RefTensor dx(x.shape);
  RefTensor dweight(weight.shape);
  RefTensor dbias(weight.shape);
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    normalise_gradient(&dy.values[static_cast<std::size_t>(row * x.columns())], &x.values[static_cast<std::size_t>(row * x.columns())],
                       x.columns(), op.kind, {stats.at(row, 0), stats.at(row, 1)}, weight.values.data(),
                       {&dx.at(row, 0), dweight.values.data(), dbias.values.data()});
  }
  if (op.has_dsum) add_to(dx, in.next_tensor());
  if (op.accumulate) add_to(dweight, in.next_tensor());
  if (op.accumulate && op.bias) add_to(dbias, in.next_tensor());
  if (op.bias) return {std::move(dx), std::move(dweight), std::move(dbias)};
  return {std::move(dx), std::move(dweight)};
}

Results compute(const ops::QkNorm& op, Operands operands) {
  const RefTensor& packed = tensor(operands[0]);
  RefTensor y = packed;  // the values stay as they are
  RefTensor stats(base::Shape{packed.rows(), op.heads.query + op.heads.kv});
  for (std::int64_t row = 0; row < packed.rows(); ++row) {
    for (const HeadAt& head : normalised_heads(op.heads)) {
      const double* x = &packed.values[static_cast<std::size_t>(row * packed.columns() + head.offset)];
      const Stats of_head = stats_of(x, op.heads.dim, NormKind::rms, op.eps);
      const RefTensor& weight = tensor(operands[head.query ? 1 : 2]);
      normalise(x, op.heads.dim, of_head, weight.values.data(), nullptr, &y.at(row, head.offset));
      stats.at(row, head.stat) = of_head.inverse;
    }
  }
  return {std::move(y), std::move(stats)};
}

Results compute(const ops::QkNormGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& dy = in.next_tensor();
  const RefTensor& packed = in.next_tensor();
  const RefTensor& weight_q = in.next_tensor();
  const RefTensor& weight_k = in.next_tensor();
  const RefTensor& stats = in.next_tensor();
  RefTensor dpacked = dy;
  RefTensor dweight_q(weight_q.shape);
  RefTensor dweight_k(weight_k.shape);
  for (std::int64_t row = 0; row < packed.rows(); ++row) {
    for (const HeadAt& head : normalised_heads(op.heads)) {
      const auto start = static_cast<std::size_t>(row * packed.columns() + head.offset);
      normalise_gradient(&dy.values[start], &packed.values[start], op.heads.dim, NormKind::rms, {0.0, stats.at(row, head.stat)},
                         (head.query ? weight_q : weight_k).values.data(),
                         {&dpacked.values[start], (head.query ? dweight_q : dweight_k).values.data(), nullptr});
    }
  }
  if (op.accumulate) add_to(dweight_q, in.next_tensor());
  if (op.accumulate) add_to(dweight_k, in.next_tensor());
  return {std::move(dpacked), std::move(dweight_q), std::move(dweight_k)};
}

Results compute(const ops::NormGradGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& dy = in.next_tensor();
  const RefTensor& x = in.next_tensor();
  const RefTensor& weight = in.next_tensor();
  const RefTensor& stats = in.next_tensor();
  const RefTensor* arrived_dx = op.input ? &in.next_tensor() : nullptr;
  const RefTensor* arrived_dweight = op.weight ? &in.next_tensor() : nullptr;
  RefTensor ddy(x.shape);
  RefTensor dx(x.shape);
  RefTensor dweight(weight.shape);
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    const auto start = static_cast<std::size_t>(row * x.columns());
    normalise_second(&dy.values[start], &x.values[start], x.columns(), op.kind, {stats.at(row, 0), stats.at(row, 1)}, weight.values.data(),
                     {arrived_dx != nullptr ? &arrived_dx->values[start] : nullptr,
                      arrived_dweight != nullptr ? arrived_dweight->values.data() : nullptr, &ddy.values[start], &dx.values[start],
                      dweight.values.data()});
  }
  return {std::move(ddy), std::move(dx), std::move(dweight)};
}

Results compute(const ops::QkNormGradGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& dy = in.next_tensor();
  const RefTensor& packed = in.next_tensor();
  const RefTensor& weight_q = in.next_tensor();
  const RefTensor& weight_k = in.next_tensor();
  const RefTensor& stats = in.next_tensor();
  const RefTensor* arrived = op.input ? &in.next_tensor() : nullptr;
  const RefTensor* arrived_q = op.query ? &in.next_tensor() : nullptr;
  const RefTensor* arrived_k = op.key ? &in.next_tensor() : nullptr;
  RefTensor ddpacked = arrived != nullptr ? *arrived : RefTensor(packed.shape);  // gradients of values pass through
  RefTensor dpacked(packed.shape);
  RefTensor dweight_q(weight_q.shape);
  RefTensor dweight_k(weight_k.shape);
  for (std::int64_t row = 0; row < packed.rows(); ++row) {
    for (const HeadAt& head : normalised_heads(op.heads)) {
      const auto start = static_cast<std::size_t>(row * packed.columns() + head.offset);
      const RefTensor* arrived_weight = head.query ? arrived_q : arrived_k;
      normalise_second(
          &dy.values[start], &packed.values[start], op.heads.dim, NormKind::rms, {0.0, stats.at(row, head.stat)},
          (head.query ? weight_q : weight_k).values.data(),
          {arrived != nullptr ? &arrived->values[start] : nullptr, arrived_weight != nullptr ? arrived_weight->values.data() : nullptr,
           &ddpacked.values[start], &dpacked.values[start], (head.query ? dweight_q : dweight_k).values.data()});
    }
  }
  return {std::move(ddpacked), std::move(dpacked), std::move(dweight_q), std::move(dweight_k)};
}

}  // namespace plimsoll::kernels::cpu::reference
