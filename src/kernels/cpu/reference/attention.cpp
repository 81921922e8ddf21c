// attention and its gradient, one query at a time with its row of scores.
//   s_j = q.k_j / sqrt(D),  p = softmax(s) over the keys seen,  out = sum_j f_j p_j v_j  (f: the dropout factor)
//   dv_j += f_j p_j dout,   ds_j = p_j (f_j dout.v_j - dout.out + dlse),   dq += ds_j k_j / sqrt(D),   dk_j += ds_j q / sqrt(D)
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/reference/compute.h"
#include "kernels/cpu/reference/dropout.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// The operands both directions share, and where things lie in them.
class Problem {
 public:
  // The tensors are queries, keys and values, or packed alone.
  Problem(const ops::Attention& op, Reader& in) : op_(op), mask_(op.mask()), scale_(1.0 / std::sqrt(static_cast<double>(op.heads.dim))) {
    for (std::size_t index = 0; index < op.tensors(); ++index) tensors_.push_back(&in.next_tensor());
    queries_ = tensors_[0]->shape[1];
    keys_ = tensors_[op.key_operand()]->shape[1];
  }
  // Of what is behind the other tensors.
  void read_masks(Reader& in) {
    if (op_.segmented) query_segments_ = key_segments_ = &in.next_tensor();
    if (op_.segmented && op_.separate) key_segments_ = &in.next_tensor();
    if (op_.rate > 0.0) {
      const RefTensor& samples = in.next_tensor();
      dropout_ = std::make_unique<DropoutSite>(op_.rate, op_.site, samples, in.next_scalars());
    }
  }

  std::int64_t batch() const { return tensors_[0]->shape[0]; }
  std::int64_t queries() const { return queries_; }
  std::int64_t keys() const { return keys_; }
  std::int64_t kv_head(std::int64_t head) const { return head / op_.heads.per_group(); }

  // Of one of the tensors, or of one that lies like it.
  const double* query(std::int64_t b, std::int64_t head, std::int64_t i) const { return &tensors_[0]->values[query_at(b, head, i)]; }
  const double* key(std::int64_t b, std::int64_t head, std::int64_t j) const {
    return &tensors_[op_.key_operand()]->values[key_at(b, head, j)];
  }
  const double* value(std::int64_t b, std::int64_t head, std::int64_t j) const {
    return &tensors_[op_.value_operand()]->values[value_at(b, head, j)];
  }
  std::size_t query_at(std::int64_t b, std::int64_t head, std::int64_t i) const {
    const std::int64_t first = op_.separate ? head * op_.heads.dim : op_.heads.query_offset(head);
    return offset((b * queries_ + i) * tensors_[0]->columns() + first);
  }
  std::size_t key_at(std::int64_t b, std::int64_t head, std::int64_t j) const {
    return key_row(b, j) + offset(op_.separate ? kv_head(head) * op_.heads.dim : op_.heads.key_offset(kv_head(head)));
  }
  std::size_t value_at(std::int64_t b, std::int64_t head, std::int64_t j) const {
    return key_row(b, j) + offset(op_.separate ? kv_head(head) * op_.heads.dim : op_.heads.value_offset(kv_head(head)));
  }
  std::size_t out_at(std::int64_t b, std::int64_t head, std::int64_t i) const {
    return offset((b * queries_ + i) * op_.heads.query * op_.heads.dim + head * op_.heads.dim);
  }
  std::size_t lse_at(std::int64_t b, std::int64_t head, std::int64_t i) const {
    return offset((b * op_.heads.query + head) * queries_ + i);
  }

  bool sees(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (!mask_.visible(query_position(i), key_position(j), op_.first_head + head)) return false;
    if (query_segments_ == nullptr) return true;
    const double of_query = (*query_segments_)[b * queries_ + i];
    return of_query >= 0.0 && of_query == (*key_segments_)[b * keys_ + j];
  }

  double score(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    return scale_ * dot(query(b, head, i), key(b, head, j));
  }

  double factor(std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (!dropout_) return 1.0;
    const std::int64_t length = op_.separate ? op_.length : queries_;
    return dropout_->factor(b, ((op_.first_head + head) * length + query_position(i)) * length + key_position(j));
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
  std::size_t key_row(std::int64_t b, std::int64_t j) const { return offset((b * keys_ + j) * tensors_[op_.key_operand()]->columns()); }
  std::int64_t query_position(std::int64_t i) const { return op_.queries(queries_).at(i); }
  std::int64_t key_position(std::int64_t j) const { return op_.keys(keys_).at(j); }

  const ops::Attention& op_;
  const ops::Mask mask_;
  const double scale_;
  std::vector<const RefTensor*> tensors_;
  std::int64_t queries_ = 0;
  std::int64_t keys_ = 0;
  const RefTensor* query_segments_ = nullptr;
  const RefTensor* key_segments_ = nullptr;
  std::unique_ptr<DropoutSite> dropout_;
};

}  // namespace

Results compute(const ops::Attention& op, Operands operands) {
  Reader in(operands);
  Problem problem(op, in);
  problem.read_masks(in);
  RefTensor out(base::Shape{problem.batch(), problem.queries(), op.heads.query * op.heads.dim});
  RefTensor lse(base::Shape{problem.batch(), op.heads.query, problem.queries()});
  std::vector<double> scores(static_cast<std::size_t>(problem.keys()));
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < op.heads.query; ++head) {
      for (std::int64_t i = 0; i < problem.queries(); ++i) {
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < problem.keys(); ++j) {
          double& score = scores[static_cast<std::size_t>(j)];
          score = problem.sees(b, head, i, j) ? problem.score(b, head, i, j) : -std::numeric_limits<double>::infinity();
          largest = std::max(largest, score);
        }
        lse.values[problem.lse_at(b, head, i)] = largest;
        if (std::isinf(largest)) continue;  // sees nothing: zeros
        double sum = 0.0;
        for (const double score : scores) sum += std::exp(score - largest);
        for (std::int64_t j = 0; j < problem.keys(); ++j) {
          if (!problem.sees(b, head, i, j)) continue;
          const double probability = std::exp(scores[static_cast<std::size_t>(j)] - largest) / sum;
          problem.add(&out.values[problem.out_at(b, head, i)], problem.factor(b, head, i, j) * probability, problem.value(b, head, j));
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
  Problem problem(op.forward, in);
  const RefTensor& out = in.next_tensor();
  const RefTensor& lse = in.next_tensor();
  const RefTensor* dlse = op.of_lse ? &in.next_tensor() : nullptr;
  problem.read_masks(in);
  std::vector<RefTensor> grads;
  for (std::size_t index = 0; index < op.forward.tensors(); ++index) grads.emplace_back(tensor(operands[1 + index]).shape);
  RefTensor& dquery = grads[0];
  RefTensor& dkey = grads[op.forward.key_operand()];
  RefTensor& dvalue = grads[op.forward.value_operand()];
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < op.forward.heads.query; ++head) {
      for (std::int64_t i = 0; i < problem.queries(); ++i) {
        const double* dout_i = &dout.values[problem.out_at(b, head, i)];
        double delta = problem.dot(dout_i, &out.values[problem.out_at(b, head, i)]);
        if (dlse != nullptr) delta -= dlse->values[problem.lse_at(b, head, i)];
        for (std::int64_t j = 0; j < problem.keys(); ++j) {
          if (!problem.sees(b, head, i, j)) continue;
          const double probability = std::exp(problem.score(b, head, i, j) - lse.values[problem.lse_at(b, head, i)]);
          const double factor = problem.factor(b, head, i, j);
          problem.add(&dvalue.values[problem.value_at(b, head, j)], factor * probability, dout_i);
          const double dprobability = factor * problem.dot(dout_i, problem.value(b, head, j));
          const double dscore = problem.scale() * probability * (dprobability - delta);
          problem.add(&dquery.values[problem.query_at(b, head, i)], dscore, problem.key(b, head, j));
          problem.add(&dkey.values[problem.key_at(b, head, j)], dscore, problem.query(b, head, i));
        }
      }
    }
  }
  return {std::make_move_iterator(grads.begin()), std::make_move_iterator(grads.end())};
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
  const RefTensor& packed = tensor(operands[2]);
  Problem problem(op.forward, in);
  const RefTensor& out = in.next_tensor();
  const RefTensor& lse = in.next_tensor();
  problem.read_masks(in);
  const double scale = problem.scale();
  RefTensor ddout(dout.shape);
  RefTensor dpacked(packed.shape);
  std::vector<double> probabilities(static_cast<std::size_t>(problem.keys()));
  std::vector<double> slopes(probabilities.size());  // s'
  for (std::int64_t b = 0; b < problem.batch(); ++b) {
    for (std::int64_t head = 0; head < op.forward.heads.query; ++head) {
      for (std::int64_t i = 0; i < problem.queries(); ++i) {
        const std::size_t q = problem.query_at(b, head, i);
        const std::size_t o = problem.out_at(b, head, i);
        double mean = 0.0;  // sum p s'
        for (std::int64_t j = 0; j < problem.keys(); ++j) {
          if (!problem.sees(b, head, i, j)) continue;
          const std::size_t k = problem.key_at(b, head, j);
          double& probability = probabilities[static_cast<std::size_t>(j)];
          double& slope = slopes[static_cast<std::size_t>(j)];
          probability = std::exp(problem.score(b, head, i, j) - lse.values[problem.lse_at(b, head, i)]);
          slope = scale * (problem.dot(&arrived.values[q], &packed.values[k]) + problem.dot(&packed.values[q], &arrived.values[k]));
          mean += probability * slope;
        }
        for (std::int64_t j = 0; j < problem.keys(); ++j) {
          if (!problem.sees(b, head, i, j)) continue;
          const std::size_t v = problem.value_at(b, head, j);
          const double factor = problem.factor(b, head, i, j);
          const double probability = probabilities[static_cast<std::size_t>(j)];
          const double moved = probability * (slopes[static_cast<std::size_t>(j)] - mean);  // p'
          problem.add(&ddout.values[o], factor * moved, &packed.values[v]);
          problem.add(&ddout.values[o], factor * probability, &arrived.values[v]);
        }
        const double delta = problem.dot(&dout.values[o], &out.values[o]);
        const double delta_moved = problem.dot(&dout.values[o], &ddout.values[o]);
        for (std::int64_t j = 0; j < problem.keys(); ++j) {
          if (!problem.sees(b, head, i, j)) continue;
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

namespace {

// exp(lse - whole), 0 where nothing was seen.
double share_of(double lse, double whole) { return std::isinf(lse) && lse < 0.0 ? 0.0 : std::exp(lse - whole); }

double log_of_sum(double a, double b) {
  const double larger = std::max(a, b);
  return std::isinf(larger) ? larger : larger + std::log(std::exp(a - larger) + std::exp(b - larger));
}

// visit(row of lse, first element of the head) of (B, T, H*D) for every query of every head.
template <typename Visit>
void for_each_head(const base::Shape& out, std::int64_t heads, Visit&& visit) {
  const std::int64_t dim = out[2] / heads;
  for (std::int64_t b = 0; b < out[0]; ++b) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t t = 0; t < out[1]; ++t) visit((b * heads + head) * out[1] + t, (b * out[1] + t) * out[2] + head * dim, dim);
    }
  }
}

}  // namespace

Results compute(const ops::MergeAttention&, Operands operands) {
  const RefTensor &out_a = tensor(operands[0]), &lse_a = tensor(operands[1]), &out_b = tensor(operands[2]), &lse_b = tensor(operands[3]);
  RefTensor out(out_a.shape);
  RefTensor lse(lse_a.shape);
  for_each_head(out.shape, lse.shape[1], [&](std::int64_t at, std::int64_t first, std::int64_t dim) {
    lse[at] = log_of_sum(lse_a[at], lse_b[at]);
    const double a = share_of(lse_a[at], lse[at]);
    const double b = share_of(lse_b[at], lse[at]);
    for (std::int64_t e = first; e < first + dim; ++e) out[e] = a * out_a[e] + b * out_b[e];
  });
  return {std::move(out), std::move(lse)};
}

Results compute(const ops::MergeAttentionGrad& op, Operands operands) {
  Reader in(operands);
  const RefTensor& dout = in.next_tensor();
  const RefTensor* dlse = op.of_lse ? &in.next_tensor() : nullptr;
  const RefTensor& out_a = in.next_tensor();
  const RefTensor& lse_a = in.next_tensor();
  const RefTensor& out_b = in.next_tensor();
  const RefTensor& lse_b = in.next_tensor();
  RefTensor dout_a(out_a.shape), dout_b(out_b.shape), dlse_a(lse_a.shape), dlse_b(lse_b.shape);
  for_each_head(dout.shape, lse_a.shape[1], [&](std::int64_t at, std::int64_t first, std::int64_t dim) {
    const double whole = log_of_sum(lse_a[at], lse_b[at]);
    const double a = share_of(lse_a[at], whole);
    const double b = share_of(lse_b[at], whole);
    double apart = 0.0;  // dout.(out_a - out_b)
    for (std::int64_t e = first; e < first + dim; ++e) {
      apart += dout[e] * (out_a[e] - out_b[e]);
      dout_a[e] = a * dout[e];
      dout_b[e] = b * dout[e];
    }
    const double arrived = dlse == nullptr ? 0.0 : (*dlse)[at];
    dlse_a[at] = a * (arrived + b * apart);
    dlse_b[at] = b * (arrived - a * apart);
  });
  return {std::move(dout_a), std::move(dlse_a), std::move(dout_b), std::move(dlse_b)};
}

}  // namespace plimsoll::kernels::cpu::reference
