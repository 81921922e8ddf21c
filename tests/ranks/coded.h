// What tests of codecs name their layouts with.
#pragma once

#include <string_view>

#include "codecs/table.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {

inline codecs::Choice choice_of(std::string_view name, codecs::Use use = codecs::Use::gradients) {
  return codecs::choice_of(*codecs::find_codec(name), use);
}

inline strategy::Strategy over(std::int64_t data, std::int64_t zero, std::int64_t tensor = 1, std::int64_t pipe = 1) {
  strategy::Strategy strategy;
  strategy.data = data;
  strategy.zero = zero;
  strategy.tensor = tensor;
  strategy.pipe = pipe;
  return strategy;
}

inline strategy::Strategy with(strategy::Strategy strategy, const codecs::Choice& gradients, const codecs::Choice& weights = {},
                               const codecs::Choice& activations = {}) {
  strategy.communication = {.gradients = gradients, .weights = weights, .activations = activations};
  return strategy;
}

inline Task small_task(model::Precision precision = model::Precision::f32) {
  return {.model = small_model(model::Family::llama), .precision = precision, .samples = 8};
}

}  // namespace plimsoll::ranks
