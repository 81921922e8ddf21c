// Which tokens a sample covers: a pure function of the sample's number.
//
// Samples are numbered 0, 1, 2, ... without end; an *epoch* is one pass over the data. Sample i of an epoch of N tokens
// covers the `stride` tokens from i * stride on and the one after them (the last target), so an epoch has
// (N - 1) / stride samples and the remainder is left out, or comes as one short sample with include_tail. Shuffling
// permutes the samples of each epoch by a key made of (seed, epoch). The data position of a run is therefore one
// number, the next sample's, whatever the batch size and the number of ranks were before and are now.
#pragma once

#include <cstdint>
#include <string>

namespace plimsoll::data {

struct Window {
  std::int64_t begin = 0;   // first token
  std::int64_t length = 0;  // tokens that have a successor in the window
  std::int64_t epoch = 0;
  std::int64_t index = 0;  // in file order within the epoch

  bool operator==(const Window&) const = default;
};

struct SamplerOptions {
  std::string name = "the data";  // for messages
  std::int64_t tokens = 0;
  std::int64_t stride = 0;
  std::uint64_t seed = 1;
  bool shuffle = true;
  bool include_tail = false;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // bad input: too few tokens for one sample

  std::int64_t samples_per_epoch() const { return samples_per_epoch_; }
  Window window(std::int64_t sample) const;

 private:
  SamplerOptions options_;
  std::int64_t samples_per_epoch_;
};

}  // namespace plimsoll::data
