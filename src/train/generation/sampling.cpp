// A vocabulary has a hundred thousand tokens and a draw needs a few hundred of them in order: a heap gives them one by
// one, and sorting them all would cost more than the model does.
#include "train/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace plimsoll::train {

namespace {

// Tokens that may be drawn, with their weights.
struct Candidates {
  std::vector<std::int32_t> tokens;
  std::vector<double> weights;
};

// Hands out tokens, likeliest first.
class InOrder {
 public:
  explicit InOrder(std::span<const float> logits) : logits_(logits), heap_(logits.size()) {
    std::iota(heap_.begin(), heap_.end(), 0);
    std::make_heap(heap_.begin(), heap_.end(), [this](std::int32_t a, std::int32_t b) { return less_likely(a, b); });
  }

  bool empty() const { return heap_.empty(); }
  std::int32_t next() {
    std::pop_heap(heap_.begin(), heap_.end(), [this](std::int32_t a, std::int32_t b) { return less_likely(a, b); });
    const std::int32_t token = heap_.back();
    heap_.pop_back();
    return token;
  }

 private:
  bool less_likely(std::int32_t a, std::int32_t b) const {
    const float left = logits_[static_cast<std::size_t>(a)];
    const float right = logits_[static_cast<std::size_t>(b)];
    return left < right || (left == right && a > b);
  }

  std::span<const float> logits_;
  std::vector<std::int32_t> heap_;
};

class Weights {
 public:
  Weights(std::span<const float> logits, double temperature)
      : logits_(logits), highest_(*std::max_element(logits.begin(), logits.end())), temperature_(temperature) {}

  double of(std::int32_t token) const {
    return std::exp((static_cast<double>(logits_[static_cast<std::size_t>(token)]) - highest_) / temperature_);
  }
  double total() const {
    double sum = 0.0;
    for (std::size_t token = 0; token < logits_.size(); ++token) sum += of(static_cast<std::int32_t>(token));
    return sum;
  }

 private:
  std::span<const float> logits_;
  double highest_;
  double temperature_;
};

Candidates candidates_of(std::span<const float> logits, const Sampling& sampling) {
  const Weights weights(logits, sampling.temperature);
  Candidates candidates;
  const bool limited = sampling.top_k > 0 && sampling.top_k < std::ssize(logits);
  if (!limited && sampling.top_p >= 1.0) {
    candidates.tokens.resize(logits.size());
    std::iota(candidates.tokens.begin(), candidates.tokens.end(), 0);
    for (const std::int32_t token : candidates.tokens) candidates.weights.push_back(weights.of(token));
    return candidates;
  }
  InOrder in_order(logits);
  const std::int64_t most = limited ? sampling.top_k : std::ssize(logits);
  // Without top_k the share is one of all tokens, so tokens can be taken until it is reached.
  const double enough = limited ? 0.0 : sampling.top_p * weights.total();
  double kept = 0.0;
  while (std::ssize(candidates.tokens) < most && (limited || candidates.tokens.empty() || kept < enough)) {
    candidates.tokens.push_back(in_order.next());
    candidates.weights.push_back(weights.of(candidates.tokens.back()));
    kept += candidates.weights.back();
  }
  if (!limited) return candidates;
  // The likeliest is always in the set.
  double share = 0.0;
  std::size_t count = 0;
  while (count < candidates.tokens.size() && (count == 0 || share < sampling.top_p * kept)) share += candidates.weights[count++];
  candidates.tokens.resize(count);
  candidates.weights.resize(count);
  return candidates;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t index) {
  if (sampling.temperature <= 0.0) return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const Candidates candidates = candidates_of(logits, sampling);
  const double total = std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
  const auto draw = static_cast<std::uint64_t>(index);
  const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0, 0},
                                              base::random_key(sampling.seed, base::hash_name("generate")));
  double left = (static_cast<double>(bits[0]) + 0.5) * 0x1p-32 * total;
  for (std::size_t place = 0; place < candidates.tokens.size(); ++place) {
    left -= candidates.weights[place];
    if (left < 0.0) return candidates.tokens[place];
  }
  return candidates.tokens.back();
}

}  // namespace plimsoll::train
