// Which elements a dropout site keeps: used by dropout, residual, norm and attention alike.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "kernels/cpu/reference/tensor.h"

namespace plimsoll::kernels::cpu::reference {

class DropoutSite {
 public:
  DropoutSite(double rate, std::uint64_t site, const RefTensor& samples, const ops::StepScalars& scalars)
      : rate_(rate), step_(scalars.step), key_(base::random_key(scalars.seed, site)), samples_(samples) {}

  // What element `element` of the batch's sample `n` is multiplied with: 0, or 1 / (1 - rate) where it is kept.
  double factor(std::int64_t n, std::int64_t element) const {
    const auto e = static_cast<std::uint64_t>(element);
    const base::RandomBlock counter{static_cast<std::uint32_t>(e / 4), static_cast<std::uint32_t>(integer(samples_[n])), step_,
                                    static_cast<std::uint32_t>(e / 4 >> 32)};
    const std::uint32_t word = base::philox(counter, key_)[e % 4];
    return static_cast<double>(word) >= rate_ * 0x1p32 ? 1.0 / (1.0 - rate_) : 0.0;
  }

  // Applies it to x, of which `op` says which rows it has.
  template <typename Attributes>
  void apply(const Attributes& op, RefTensor& x) const {
    const std::int64_t size = op.sample_rows > 0 ? op.sample_rows * x.columns() : x.elements() / samples_.elements();
    const std::int64_t before = op.first_row * x.columns();
    for (std::int64_t e = 0; e < x.elements(); ++e) x[e] *= factor((before + e) / size, (before + e) % size);
  }

 private:
  double rate_;
  std::uint32_t step_;
  base::RandomKey key_;
  const RefTensor& samples_;
};

}  // namespace plimsoll::kernels::cpu::reference
