#include "kernels_attention/naive_attention.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/random.h"

namespace plimsoll::test {

namespace {

bool sees(const AttentionCase& work, std::int64_t sample, std::int64_t i, std::int64_t j) {
  const ops::Attention& attention = work.attention;
  if (attention.causal && j > i) return false;
  if (attention.window > 0 && j <= i - attention.window) return false;
  // The only pattern that is tried here is the strided one.
  if (attention.pattern.rule != nullptr && std::abs(i - j) >= attention.pattern.numbers[0] && (i - j) % attention.pattern.numbers[1] != 0)
    return false;
  if (!attention.segmented) return true;
  const std::int32_t* ids = work.segments.data() + sample * work.length;
  return ids[i] == ids[j] && ids[i] >= 0;
}

double keep_factor(const AttentionCase& work, std::int64_t sample, std::int64_t head, std::int64_t i, std::int64_t j) {
  const double rate = work.attention.rate;
  if (rate == 0.0) return 1.0;
  const auto element = static_cast<std::uint64_t>((head * work.length + i) * work.length + j);
  const std::uint64_t block = element / 4;
  const auto words = base::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(work.samples[sample]), work.step,
                                   static_cast<std::uint32_t>(block >> 32)},
                                  base::random_key(work.seed, work.attention.site));
  return static_cast<double>(words[element % 4]) >= rate * 0x1p32 ? 1.0 / (1.0 - rate) : 0.0;
}

// Where one head's vectors lie.
struct Place {
  const AttentionCase& work;
  std::int64_t sample, head;

  std::int64_t row(std::int64_t position) const { return (sample * work.length + position) * work.attention.heads.packed_width(); }
  std::int64_t kv_head() const { return head / work.attention.heads.per_group(); }
  std::int64_t query(std::int64_t i) const { return row(i) + work.attention.heads.query_offset(head); }
  std::int64_t key(std::int64_t j) const { return row(j) + work.attention.heads.key_offset(kv_head()); }
  std::int64_t value(std::int64_t j) const { return row(j) + work.attention.heads.value_offset(kv_head()); }
  std::int64_t out(std::int64_t i) const {
    return ((sample * work.length + i) * work.attention.heads.query + head) * work.attention.heads.dim;
  }
};

double dot(const double* a, const double* b, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < count; ++c) sum += a[c] * b[c];
  return sum;
}

// The probabilities of one query before dropout; all zero if it sees nothing. Returns the log-sum-exp.
double probabilities(const Place& place, std::int64_t i, const std::vector<double>& packed, std::vector<double>& p) {
  const AttentionCase& work = place.work;
  const std::int64_t dim = work.attention.heads.dim;
  double max = -std::numeric_limits<double>::infinity();
  for (std::int64_t j = 0; j < work.length; ++j) {
    p[j] = -std::numeric_limits<double>::infinity();
    if (!sees(work, place.sample, i, j)) continue;
    p[j] = dot(&packed[place.query(i)], &packed[place.key(j)], dim) / std::sqrt(static_cast<double>(dim));
    max = std::max(max, p[j]);
  }
  double sum = 0.0;
  for (double& score : p) {
    score = std::isinf(score) ? 0.0 : std::exp(score - max);
    sum += score;
  }
  for (double& score : p) score = sum == 0.0 ? 0.0 : score / sum;
  return sum == 0.0 ? -std::numeric_limits<double>::infinity() : max + std::log(sum);
}

template <typename Visit>
void for_each_query(const AttentionCase& work, Visit&& visit) {
  for (std::int64_t sample = 0; sample < work.batch; ++sample) {
    for (std::int64_t head = 0; head < work.attention.heads.query; ++head) {
      for (std::int64_t i = 0; i < work.length; ++i) visit(Place{work, sample, head}, i);
    }
  }
}

}  // namespace

NaiveForward naive_attention(const AttentionCase& work, const std::vector<double>& packed) {
  const ops::Heads& heads = work.attention.heads;
  NaiveForward result;
  result.out.assign(static_cast<std::size_t>(work.batch * work.length * heads.query * heads.dim), 0.0);
  result.lse.assign(static_cast<std::size_t>(work.batch * heads.query * work.length), 0.0);
  std::vector<double> p(static_cast<std::size_t>(work.length));
  for_each_query(work, [&](const Place& place, std::int64_t i) {
    result.lse[(place.sample * heads.query + place.head) * work.length + i] = probabilities(place, i, packed, p);
    for (std::int64_t j = 0; j < work.length; ++j) {
      const double weight = p[j] * keep_factor(work, place.sample, place.head, i, j);
      for (std::int64_t c = 0; c < heads.dim; ++c) result.out[place.out(i) + c] += weight * packed[place.value(j) + c];
    }
  });
  return result;
}

std::vector<double> naive_attention_grad(const AttentionCase& work, const std::vector<double>& dout, const std::vector<double>& packed,
                                         const std::vector<double>& out) {
  const std::int64_t dim = work.attention.heads.dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  std::vector<double> dpacked(packed.size(), 0.0);
  std::vector<double> p(static_cast<std::size_t>(work.length));
  for_each_query(work, [&](const Place& place, std::int64_t i) {
    probabilities(place, i, packed, p);
    const double* dout_i = &dout[place.out(i)];
    const double delta = dot(dout_i, &out[place.out(i)], dim);
    for (std::int64_t j = 0; j < work.length; ++j) {
      if (!sees(work, place.sample, i, j)) continue;
      const double factor = keep_factor(work, place.sample, place.head, i, j);
      const double ds = p[j] * (factor * dot(dout_i, &packed[place.value(j)], dim) - delta) * scale;
      for (std::int64_t c = 0; c < dim; ++c) {
        dpacked[place.value(j) + c] += p[j] * factor * dout_i[c];
        dpacked[place.query(i) + c] += ds * packed[place.key(j) + c];
        dpacked[place.key(j) + c] += ds * packed[place.query(i) + c];
      }
    }
  });
  return dpacked;
}

}  // namespace plimsoll::test
