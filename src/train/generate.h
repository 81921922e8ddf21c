// Text from a model, one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/session.h"

namespace plimsoll::train {

struct Sampling {
  double temperature = 0.0;  // 0: the likeliest token always
  std::int64_t top_k = 0;    // 0: no limit
  double top_p = 1.0;
  std::uint64_t seed = 1;
};

// The next token from one row of logits; `index` numbers the draw, so that the same seed gives the same text.
std::int32_t sample_token(std::span<const float> logits, const Sampling& sampling, std::int64_t index);

// Continues `prompt` by `count` tokens, handing on each as it is made; stops early when `on_token` returns false. The
// session must have an inference program; what is longer than its sequence is forgotten from the front.
void generate(Session& session, std::vector<std::int32_t> prompt, std::int64_t count, const Sampling& sampling,
              const std::function<bool(std::int32_t)>& on_token);

}  // namespace plimsoll::train
