// The next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

namespace plimsoll::train {

struct Sampling {
  double temperature = 0.0;  // 0: the likeliest token always
  std::int64_t top_k = 0;    // only the k likeliest; 0: no limit
  double top_p = 1.0;        // of those the smallest set that has this share of the probability
  std::uint64_t seed = 1;
};

// `index` numbers the draw: the same seed and index give the same token. Of equally likely tokens the lower comes first.
std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t index);

}  // namespace plimsoll::train
