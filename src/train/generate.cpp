#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace plimsoll::train {

namespace {

// Tokens that may be drawn, likeliest first, with their probabilities.
struct Candidates {
  std::vector<std::int32_t> tokens;
  std::vector<double> weights;
};

Candidates candidates_of(std::span<const float> logits, const Sampling& sampling) {
  Candidates candidates;
  candidates.tokens.resize(logits.size());
  std::iota(candidates.tokens.begin(), candidates.tokens.end(), 0);
  std::stable_sort(candidates.tokens.begin(), candidates.tokens.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (sampling.top_k > 0 && sampling.top_k < static_cast<std::int64_t>(candidates.tokens.size())) {
    candidates.tokens.resize(static_cast<std::size_t>(sampling.top_k));
  }
  const double highest = logits[static_cast<std::size_t>(candidates.tokens.front())];
  double total = 0.0;
  for (std::int32_t token : candidates.tokens) {
    candidates.weights.push_back(std::exp((logits[static_cast<std::size_t>(token)] - highest) / sampling.temperature));
    total += candidates.weights.back();
  }
  // The smallest set whose probability reaches top_p; the likeliest is always in it.
  double kept = 0.0;
  std::size_t count = 0;
  while (count < candidates.weights.size() && (count == 0 || kept < sampling.top_p * total)) kept += candidates.weights[count++];
  candidates.tokens.resize(count);
  candidates.weights.resize(count);
  return candidates;
}

void read_row(const Session& session, std::int64_t row, std::span<float> out) {
  const std::string name = program_buffer("infer", "logits", 0);
  const base::DType dtype = session.buffers().buffer(name).type.dtype;
  const auto first = static_cast<std::size_t>(row) * out.size();
  for (std::size_t index = 0; index < out.size(); ++index) {
    switch (dtype) {
      case base::DType::f32: out[index] = session.buffers().view<float>(name)[first + index]; break;
      case base::DType::bf16: out[index] = base::f32_from_bf16(session.buffers().view<std::uint16_t>(name)[first + index]); break;
      case base::DType::f16: out[index] = base::f32_from_f16(session.buffers().view<std::uint16_t>(name)[first + index]); break;
      default: PLIMSOLL_CHECK(false, "logits in {}", base::name_of(dtype));
    }
  }
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

void generate(Session& session, std::vector<std::int32_t> text, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int32_t)>& on_token) {
  const std::span<std::int32_t> tokens = session.input("infer", "tokens", 0);
  const std::span<std::int32_t> positions = session.input("infer", "positions", 0);
  const std::span<std::int32_t> segments = session.input("infer", "segments", 0);
  const base::Shape& shape = session.buffers().buffer(program_buffer("infer", "logits", 0)).type.shape;
  const auto length = static_cast<std::int64_t>(tokens.size());
  std::vector<float> logits(static_cast<std::size_t>(shape[-1]));
  for (std::int64_t made = 0; made < count; ++made) {
    const auto filled = std::min<std::int64_t>(length, static_cast<std::int64_t>(text.size()));
    std::fill(tokens.begin(), tokens.end(), 0);
    std::copy(text.end() - filled, text.end(), tokens.begin());
    for (std::size_t place = 0; place < positions.size(); ++place) positions[place] = static_cast<std::int32_t>(place);
    std::fill(segments.begin(), segments.end(), 0);
    session.infer();
    read_row(session, filled - 1, logits);
    text.push_back(sample_token(logits, sampling, made));
    if (!on_token(text.back())) return;
  }
}

}  // namespace plimsoll::train
