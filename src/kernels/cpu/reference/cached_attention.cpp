// Attention over a cache of keys and values, one query at a time, as the headers in ops define it.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/reference/compute.h"

namespace plimsoll::kernels::cpu::reference {

namespace {

// The operands and where things lie in them.
struct Problem {
  const ops::Heads& heads;
  std::int64_t length;  // T
  std::int64_t slots;   // S

  std::int64_t row(std::int64_t sample, std::int64_t t) const { return (sample * length + t) * heads.packed_width(); }
  std::int64_t slot(std::int64_t sample, std::int64_t kv_head, bool value, std::int64_t position) const {
    return (((sample * heads.kv + kv_head) * 2 + (value ? 1 : 0)) * slots + position) * heads.dim;
  }
};

void store_rows(const Problem& problem, const RefTensor& packed, const RefTensor& positions, RefTensor& cache) {
  for (std::int64_t sample = 0; sample < packed.shape[0]; ++sample) {
    for (std::int64_t t = 0; t < problem.length; ++t) {
      const std::int64_t position = integer(positions[sample * problem.length + t]);
      PLIMSOLL_CHECK(position >= 0 && position < problem.slots, "position {} of {}", position, problem.slots);
      for (std::int64_t kv_head = 0; kv_head < problem.heads.kv; ++kv_head) {
        const std::int64_t row = problem.row(sample, t);
        for (std::int64_t d = 0; d < problem.heads.dim; ++d) {
          cache[problem.slot(sample, kv_head, false, position) + d] = packed[row + problem.heads.key_offset(kv_head) + d];
          cache[problem.slot(sample, kv_head, true, position) + d] = packed[row + problem.heads.value_offset(kv_head) + d];
        }
      }
    }
  }
}

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t d = 0; d < count; ++d) sum += a[d] * b[d];
  return sum;
}

// out = softmax(query . keys / sqrt(D)) values over the slots that are seen; zeros where none is.
void attend(const double* query, const double* keys, const double* values, const std::vector<std::int64_t>& slots, std::int64_t dim,
            double* out) {
  if (slots.empty()) return;
  std::vector<double> scores;
  for (const std::int64_t j : slots) scores.push_back(dot(query, keys + j * dim, dim) / std::sqrt(static_cast<double>(dim)));
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (std::size_t index = 0; index < slots.size(); ++index) {
    const double probability = scores[index] / sum;
    for (std::int64_t d = 0; d < dim; ++d) out[d] += probability * values[slots[index] * dim + d];
  }
}

}  // namespace

Results compute(const ops::CachedAttention& op, Operands operands) {
  const RefTensor& packed = tensor(operands[0]);
  const RefTensor& positions = tensor(operands[1]);
  RefTensor cache = tensor(operands[2]);
  const ops::Heads& heads = op.heads;
  const Problem problem{heads, packed.shape[1], cache.shape[2]};
  const ops::Mask mask = op.mask();
  store_rows(problem, packed, positions, cache);
  RefTensor out(base::Shape{packed.shape[0], packed.shape[1], heads.query * heads.dim});
  for (std::int64_t sample = 0; sample < packed.shape[0]; ++sample) {
    for (std::int64_t t = 0; t < problem.length; ++t) {
      const std::int64_t position = integer(positions[sample * problem.length + t]);
      for (std::int64_t head = 0; head < heads.query; ++head) {
        std::vector<std::int64_t> slots;
        for (std::int64_t j = 0; j < problem.slots; ++j) {
          if (mask.visible(position, j, op.first_head + head)) slots.push_back(j);
        }
        const std::int64_t kv_head = head / heads.per_group();
        attend(&packed.values[static_cast<std::size_t>(problem.row(sample, t) + heads.query_offset(head))],
               &cache.values[static_cast<std::size_t>(problem.slot(sample, kv_head, false, 0))],
               &cache.values[static_cast<std::size_t>(problem.slot(sample, kv_head, true, 0))], slots, heads.dim,
               &out.values[static_cast<std::size_t>(((sample * problem.length + t) * heads.query + head) * heads.dim)]);
      }
    }
  }
  return {std::move(out), std::move(cache)};
}

}  // namespace plimsoll::kernels::cpu::reference
