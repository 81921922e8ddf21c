#include <cmath>
#include <numbers>

#include "families/llama/llama.h"

namespace plimsoll::families {

std::vector<double> rope_frequencies(const model::Model& model) {
  const model::Rope& rope = model.rope;
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < model.head_dim / 2; ++pair) {
    const double plain = std::pow(rope.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(model.head_dim));
    double frequency = plain;
    if (rope.scaling == model::RopeScaling::linear) frequency = plain / rope.factor;
    if (rope.scaling == model::RopeScaling::llama3) {
      // Wavelengths longer than the original context (over low_frequency_factor) are stretched by `factor`, short ones
      // kept, and those in between blended.
      const double wavelength = 2.0 * std::numbers::pi / plain;
      const auto context = static_cast<double>(rope.original_context);
      if (wavelength > context / rope.low_frequency_factor) {
        frequency = plain / rope.factor;
      } else if (wavelength >= context / rope.high_frequency_factor) {
        const double blend = (context / wavelength - rope.low_frequency_factor) / (rope.high_frequency_factor - rope.low_frequency_factor);
        frequency = (1.0 - blend) * plain / rope.factor + blend * plain;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace plimsoll::families
