#include "graph/models/models.h"

#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace plimsoll::graph {

void build_forward(const model::Model& model, Builder& build) {
  switch (model.family) {
    case model::Family::gpt2: return build_gpt2(model, build);
    case model::Family::llama: return build_llama(model, build);
    case model::Family::bert: return build_bert(model, build);
  }
}

ops::Heads heads_of(const model::Model& model) { return {.query = model.heads, .kv = model.kv_heads, .dim = model.head_dim}; }

base::Shape matrices_in_packed(const ops::Heads& heads) { return {heads.per_group() * heads.dim, heads.dim, heads.dim}; }

ops::Placement dealt_packed(const ops::Heads& heads) {
  return {.spread = ops::Spread::split, .dim = 0, .units = heads.kv, .own = heads.per_group(), .shared = 2};
}

ops::Placement dealt_queries(const ops::Heads& heads) { return ops::on_dim(ops::without_shared(dealt_packed(heads)), 1); }

ops::ActivationKind activation_of(const model::Model& model) {
  switch (model.activation) {
    case model::ActivationKind::gelu_tanh: return ops::ActivationKind::gelu_tanh;
    case model::ActivationKind::gelu_erf: return ops::ActivationKind::gelu_erf;
    case model::ActivationKind::relu: return ops::ActivationKind::relu;
    case model::ActivationKind::silu: return ops::ActivationKind::silu;
  }
  return ops::ActivationKind::none;
}

std::string block_name(std::int64_t layer) { return fmt::format("blocks.{}", layer); }

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

}  // namespace plimsoll::graph
