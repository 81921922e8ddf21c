#include "data/masked_language.h"

#include <algorithm>

#include "base/error.h"
#include "data/batch.h"

namespace plimsoll::data {

MaskedLanguage::MaskedLanguage(const MaskedLanguageOptions& options, std::int64_t vocab, std::uint64_t seed)
    : options_(options), vocab_(vocab), key_(base::random_key(seed, base::hash_name("mlm"))) {
  const auto share = [](std::string_view name, double value) {
    if (!(value >= 0.0 && value <= 1.0)) base::bad_input("mlm.{} is {}; expected a number from 0 to 1", name, value);
  };
  share("probability", options.probability);
  share("mask", options.mask);
  share("random", options.random);
  if (options.mask + options.random > 1.0 + 1e-9) {
    base::bad_input("mlm.mask is {} and mlm.random {}; together they may be 1 at most", options.mask, options.random);
  }
  const auto id = [&](std::string_view name, std::int32_t value) {
    if (value < 0 || value >= vocab) base::bad_input("the {} token has id {}, but the vocabulary has {} ids", name, value, vocab);
  };
  id("mask", options.mask_id);
  if (options.first_token) id("first", *options.first_token);
  if (options.last_token) id("last", *options.last_token);
}

std::int64_t MaskedLanguage::apply(std::int64_t sample, std::int64_t position, std::span<std::int32_t> tokens,
                                   std::span<std::int32_t> targets) const {
  std::int64_t hidden = 0;
  const auto number = static_cast<std::uint64_t>(sample);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const base::RandomBlock bits = base::philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
                                                 static_cast<std::uint32_t>(position + static_cast<std::int64_t>(i)), 0},
                                                key_);
    const bool drawn = static_cast<double>(base::uniform_from_bits(bits[0])) < options_.probability;
    const auto& never = options_.never_masked;
    if (!drawn || std::find(never.begin(), never.end(), tokens[i]) != never.end()) {
      targets[i] = kIgnored;
      continue;
    }
    ++hidden;
    targets[i] = tokens[i];
    const auto what = static_cast<double>(base::uniform_from_bits(bits[1]));
    if (what < options_.mask) {
      tokens[i] = options_.mask_id;
    } else if (what < options_.mask + options_.random) {
      tokens[i] = static_cast<std::int32_t>(static_cast<std::uint64_t>(bits[2]) * static_cast<std::uint64_t>(vocab_) >> 32);
    }
  }
  return hidden;
}

}  // namespace plimsoll::data
