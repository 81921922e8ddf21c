// attention and its gradient, one query at a time with its row of scores.
//   s_j = q.k_j / sqrt(D),  p = softmax(s) over the keys seen,  out = sum_j f_j p_j v_j  (f: the dropout factor)
//   dv_j += f_j p_j dout,   ds_j = p_j (f_j dout.v_j - dout.out),   dq += ds_j k_j / sqrt(D),   dk_j += ds_j q / sqrt(D)
#include <cmath>
#include <limits>
#include <memory>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/dropout.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// The operands both directions share, and where things lie in them.
class Problem {
 public:
  Problem(const ops::Attention& op, const RefTensor& packed, Reader& in)
      : op_(op), packed_(packed), scale_(1.0 / std::sqrt(static_cast<double>(op.heads.dim))) {
    if (op.segmented) segments_ = &in.next_tensor();
    if (op.rate > 0.0) {
      const RefTensor& samples = in.next_tensor();
      dropout_ = std::make_unique<DropoutSite>(op.rate, op.site, samples, in.next_scalars());
    }
  }

  std::int64_t batch() const { return packed_.shape[0]; }
  std::int64_t length() const { return packed_.shape[1]; }
  std::int64_t kv_head(std::int64_t head) const { return head / op_.heads.per_group(); }

  std::size_t query_at(std::int64_t b, std::int64_t head, std::int64_t i) const { return row(b, i) + offset(op_.heads.query_offset(head)); }
  std::size_t key_at(std::int64_t b, std::int64_t head, std::int64_t j) const {
    return row(b, j) + offset(op_.heads.key_offset(kv_head(head)));
  }
  std::size_t value_at(std::int64_t b, std::int64_t head, std::int64_t j) const {
    return row(b, j) + offset(op_.heads.value_offset(kv_head(head)));
  }
  std::size_t out_at(std::int64_t b, std::int64_t head, std::int64_t i) const {
    return offset((b * length() + i) * op_.heads.query * op_.heads.dim + head * op_.heads.dim);
  }
  std::size_t lse_at(std::int64_t b, std::int64_t head, std::int64_t i) const {
    return offset((b * op_.heads.query + head) * length() + i);
  }

  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (op_.causal && j > i) return false;
    if (op_.window > 0 && j <= i - op_.window) return false;
    if (segments_ == nullptr) return true;
    const double of_query = (*segments_)[b * length() + i];
    return of_query >= 0.0 && of_query == (*segments_)[b * length() + j];
  }

  double score(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    return scale_ * dot(&packed_.values[query_at(b, head, i)], &packed_.values[key_at(b, head, j)]);
  }

  double factor(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    return dropout_ ? dropout_->factor(b, ((op_.first_head + head) * length() + i) * length() + j) : 1.0;
  }

  double dot(const double* a, const double* b) const {
    double sum = 0.0;
    for (std::int64_t d = 0; d < op_.heads.dim; ++d) sum += a[d] * b[d];
    return sum;
  }

  // to += by * from, over one head.
  void add(double* to, double by, const double* from) const {
    for (std::int64_t d = 0; d < op_.heads.dim; ++d) to[d] += by * from[d];
  }

  double scale() const { return scale_; }

 private:
  static std::size_t offset(std::int64_t value) { return static_cast<std::size_t>(value); }
  std::size_t row(std::int64_t b, std::int64_t i) const { return offset((b * length() + i) * packed_.columns()); }

  const ops::Attention& op_;
  const RefTensor& packed_;
  const double scale_;
  const RefTensor* segments_ = nullptr;
  std::unique_ptr<DropoutSite> dropout_;
};

}  // namespace

Results compute(const ops::Attention& op, Operands operands) {
  Reader in(operands);
  const RefTensor& packed = in.next_tensor();
  const Problem problem(op, packed, in);
  const std::int64_t length = problem.length();
  RefTensor out(base::Shape{problem.batch(), length, op.heads.query * op.heads.dim});
  RefTensor lse(base::Shape{problem.batch(), op.heads.query, length});
  std::vector<double> scores(static_cast<std::size_t>(length));
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < op.heads.query; ++head) {
      for (std::int64_t i = 0; i < length; ++i) {
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < length; ++j) {
          double& score = scores[static_cast<std::size_t>(j)];
          score = problem.sees(b, i, j) ? problem.score(b, head, i, j) : -std::numeric_limits<double>::infinity();
          largest = std::max(largest, score);
        }
        lse.values[problem.lse_at(b, head, i)] = largest;
        if (std::isinf(largest)) continue;  // sees nothing: zeros
        double sum = 0.0;
        for (const double score : scores) sum += std::exp(score - largest);
        for (std::int64_t j = 0; j < length; ++j) {
          if (!problem.sees(b, i, j)) continue;
          const double probability = std::exp(scores[static_cast<std::size_t>(j)] - largest) / sum;
          problem.add(&out.values[problem.out_at(b, head, i)], problem.factor(b, head, i, j) * probability,
                      &packed.values[problem.value_at(b, head, j)]);
        }
        lse.values[problem.lse_at(b, head, i)] = largest + std::log(sum);
      }
    }
  }
  return {std::move(out), std::move(lse)};
}

Results compute(const ops::AttentionGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& dout = in.next_tensor();
  const RefTensor& packed = in.next_tensor();
  const RefTensor& out = in.next_tensor();
  const RefTensor& lse = in.next_tensor();
  const Problem problem(op.forward, packed, in);
  RefTensor dpacked(packed.shape);
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < op.forward.heads.query; ++head) {
      for (std::int64_t i = 0; i < problem.length(); ++i) {
        const double* dout_i = &dout.values[problem.out_at(b, head, i)];
        const double delta = problem.dot(dout_i, &out.values[problem.out_at(b, head, i)]);
        for (std::int64_t j = 0; j < problem.length(); ++j) {
          if (!problem.sees(b, i, j)) continue;
          const double probability = std::exp(problem.score(b, head, i, j) - lse.values[problem.lse_at(b, head, i)]);
          const double factor = problem.factor(b, head, i, j);
          problem.add(&dpacked.values[problem.value_at(b, head, j)], factor * probability, dout_i);
          const double dprobability = factor * problem.dot(dout_i, &packed.values[problem.value_at(b, head, j)]);
          const double dscore = problem.scale() * probability * (dprobability - delta);
          problem.add(&dpacked.values[problem.query_at(b, head, i)], dscore, &packed.values[problem.key_at(b, head, j)]);
          problem.add(&dpacked.values[problem.key_at(b, head, j)], dscore, &packed.values[problem.query_at(b, head, i)]);
        }
      }
    }
  }
  return {std::move(dpacked)};
}

// With a dot for the derivative along what arrived at dpacked (a_q, a_k, a_v): by the symmetry of second derivatives that of out is the
// gradient of dout, and that of dpacked, dout held, the gradient of packed.
//   s'_j = (a_q.k_j + q.a_k_j) / sqrt(D),   p'_j = p_j (s'_j - sum p s'),   out' = sum_j f_j (p'_j v_j + p_j a_v_j)
//   ds'_j = p'_j (f_j dout.v_j - dout.out) + p_j (f_j dout.a_v_j - dout.out')
//   dv'_j += f_j p'_j dout,   dq' += (ds'_j k_j + ds_j a_k_j) / sqrt(D),   dk'_j += (ds'_j q + ds_j a_q) / sqrt(D)
Results compute(const ops::AttentionGradGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& arrived = in.next_tensor();
  const RefTensor& dout = in.next_tensor();
  const RefTensor& packed = in.next_tensor();
  const RefTensor& out = in.next_tensor();
  const RefTensor& lse = in.next_tensor();
  const Problem problem(op.forward, packed, in);
  const double scale = problem.scale();
  RefTensor ddout(dout.shape);
  RefTensor dpacked(packed.shape);
  std::vector<double> probabilities(static_cast<std::size_t>(problem.length()));
  std::vector<double> slopes(probabilities.size());  // s'
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < op.forward.heads.query; ++head) {
      for (std::int64_t i = 0; i < problem.length(); ++i) {
        const std::size_t q = problem.query_at(b, head, i);
        const std::size_t o = problem.out_at(b, head, i);
        double mean = 0.0;  // sum p s'
        for (std::int64_t j = 0; j < problem.length(); ++j) {
          if (!problem.sees(b, i, j)) continue;
          const std::size_t k = problem.key_at(b, head, j);
          double& probability = probabilities[static_cast<std::size_t>(j)];
          double& slope = slopes[static_cast<std::size_t>(j)];
          probability = std::exp(problem.score(b, head, i, j) - lse.values[problem.lse_at(b, head, i)]);
          slope = scale * (problem.dot(&arrived.values[q], &packed.values[k]) + problem.dot(&packed.values[q], &arrived.values[k]));
          mean += probability * slope;
        }
        for (std::int64_t j = 0; j < problem.length(); ++j) {
          if (!problem.sees(b, i, j)) continue;
          const std::size_t v = problem.value_at(b, head, j);
          const double factor = problem.factor(b, head, i, j);
          const double probability = probabilities[static_cast<std::size_t>(j)];
          const double moved = probability * (slopes[static_cast<std::size_t>(j)] - mean);  // p'
          problem.add(&ddout.values[o], factor * moved, &packed.values[v]);
          problem.add(&ddout.values[o], factor * probability, &arrived.values[v]);
        }
        const double delta = problem.dot(&dout.values[o], &out.values[o]);
        const double delta_moved = problem.dot(&dout.values[o], &ddout.values[o]);
        for (std::int64_t j = 0; j < problem.length(); ++j) {
          if (!problem.sees(b, i, j)) continue;
          const std::size_t k = problem.key_at(b, head, j);
          const std::size_t v = problem.value_at(b, head, j);
          const double factor = problem.factor(b, head, i, j);
          const double probability = probabilities[static_cast<std::size_t>(j)];
          const double moved = probability * (slopes[static_cast<std::size_t>(j)] - mean);
          const double rest = factor * problem.dot(&dout.values[o], &packed.values[v]) - delta;
          const double dscore = scale * probability * rest;
          const double dscore_moved =
              scale * (moved * rest + probability * (factor * problem.dot(&dout.values[o], &arrived.values[v]) - delta_moved));
          problem.add(&dpacked.values[v], factor * moved, &dout.values[o]);
          problem.add(&dpacked.values[q], dscore_moved, &packed.values[k]);
          problem.add(&dpacked.values[q], dscore, &arrived.values[k]);
          problem.add(&dpacked.values[k], dscore_moved, &packed.values[q]);
          problem.add(&dpacked.values[k], dscore, &arrived.values[q]);
        }
      }
    }
  }
  return {std::move(ddout), std::move(dpacked)};
}

}  // namespace plimsoll::kernels::cpu::reference
