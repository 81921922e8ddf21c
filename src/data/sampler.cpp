#include "data/sampler.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace plimsoll::data {

namespace {

std::int64_t count_samples(const SamplerOptions& options) {
  if (options.stride < 1) base::bad_input("a sequence of {} tokens was asked for; expected at least 1", options.stride);
  const std::int64_t targets = options.tokens - 1;
  const std::int64_t whole = targets / options.stride;
  const std::int64_t samples = options.include_tail ? (targets + options.stride - 1) / options.stride : whole;
  if (targets >= 1 && samples >= 1) return samples;
  base::bad_input("{} has {} tokens, but one sequence of {} needs {} (the last one is a target only); use more data{}", options.name,
                  options.tokens, options.stride, options.include_tail ? 2 : options.stride + 1,
                  targets >= 1 ? fmt::format(" or sequences of at most {}", targets) : "");
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), samples_per_epoch_(count_samples(options)) {}

Window Sampler::window(std::int64_t sample) const {
  PLIMSOLL_CHECK(sample >= 0, "sample {}", sample);
  Window window;
  window.epoch = sample / samples_per_epoch_;
  window.index = sample % samples_per_epoch_;
  if (options_.shuffle) {
    const std::uint64_t purpose = base::hash_name("data shuffle") + static_cast<std::uint64_t>(window.epoch);
    window.index =
        static_cast<std::int64_t>(base::permute(static_cast<std::uint64_t>(window.index), static_cast<std::uint64_t>(samples_per_epoch_),
                                                base::random_key(options_.seed, purpose)));
  }
  window.begin = window.index * options_.stride;
  window.length = std::min(options_.stride, options_.tokens - 1 - window.begin);
  return window;
}

}  // namespace plimsoll::data
