// The multipliers of dropout on the device, with the counters of ops::Dropout: the mask has the same bits as the processor's.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "kernels/cuda/kernel.h"
#include "ops/step_scalars.h"

namespace plimsoll::kernels::cuda {

// What a launch knows of a site. No samples: nothing is dropped.
struct DropoutSite {
  const std::int32_t* samples = nullptr;
  const ops::StepScalars* scalars = nullptr;
  std::uint64_t site = 0;
  std::uint32_t threshold = 0;  // words below it drop their element
  float scale = 1.0f;
};

inline DropoutSite dropout_site(double rate, std::uint64_t site, const Tensor& samples, const Tensor& scalars) {
  return {.samples = samples.as<const std::int32_t>(),
          .scalars = scalars.as<const ops::StepScalars>(),
          .site = site,
          .threshold = static_cast<std::uint32_t>(rate * 4294967296.0),
          .scale = static_cast<float>(1.0 / (1.0 - rate))};
}

// What is the same for a whole step.
struct DropoutKey {
  base::RandomKey key;
  std::uint32_t step;
};

__device__ __forceinline__ DropoutKey dropout_key(const DropoutSite& site) {
  return {base::random_key(site.scalars->seed, site.site), site.scalars->step};
}

// The words of elements [4 * block, 4 * block + 4) of a sample.
__device__ __forceinline__ base::RandomBlock dropout_words(const DropoutKey& key, std::uint32_t sample, std::uint64_t block) {
  return base::philox({static_cast<std::uint32_t>(block), sample, key.step, static_cast<std::uint32_t>(block >> 32)}, key.key);
}

// Multipliers of kCount elements from `element` on; kCount and element are multiples of 4.
template <int kCount>
__device__ __forceinline__ void dropout_multipliers(const DropoutSite& site, const DropoutKey& key, std::uint32_t sample,
                                                    std::uint64_t element, float (&multipliers)[kCount]) {
#pragma unroll
  for (int part = 0; part < kCount; part += 4) {
    const base::RandomBlock words = dropout_words(key, sample, element / 4 + part / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) multipliers[part + i] = words[i] < site.threshold ? 0.0f : site.scale;
  }
}

__device__ __forceinline__ float dropout_multiplier(const DropoutSite& site, const DropoutKey& key, std::uint32_t sample,
                                                    std::uint64_t element) {
  return dropout_words(key, sample, element / 4)[element % 4] < site.threshold ? 0.0f : site.scale;
}

}  // namespace plimsoll::kernels::cuda
