// Dropout's multipliers straight from the words of ops::Dropout.
#pragma once

#include "base/random.h"
#include "kernels_rows/harness.h"

namespace plimsoll::kernels::cpu::testing {

inline std::vector<double> dropout_reference(double rate, std::uint64_t site, const ops::StepScalars& scalars, const Shape& shape,
                                             const std::int32_t* samples) {
  const std::int64_t per_sample = shape.elements() / shape[0];
  const base::RandomKey key = base::random_key(scalars.seed, site);
  std::vector<double> multipliers;
  for (std::int64_t index = 0; index < shape.elements(); ++index) {
    const auto element = static_cast<std::uint64_t>(index % per_sample);
    const base::RandomBlock words =
        base::philox({static_cast<std::uint32_t>(element / 4), static_cast<std::uint32_t>(samples[index / per_sample]), scalars.step,
                      static_cast<std::uint32_t>(element / 4 >> 32)},
                     key);
    const bool kept = words[element % 4] >= static_cast<std::uint32_t>(rate * 4294967296.0);
    multipliers.push_back(kept ? 1.0 / (1.0 - rate) : 0.0);
  }
  return multipliers;
}

}  // namespace plimsoll::kernels::cpu::testing
