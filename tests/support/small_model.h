// Models small enough that a test trains them in milliseconds, of every family.
#pragma once

#include <cstdint>

#include "families/families.h"

namespace plimsoll::tests {

struct SmallModel {
  std::int64_t layers = 2;
  std::int64_t width = 32;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;  // 0: half as many as heads where the family is llama, else as many
  std::int64_t ffn = 64;
  std::int64_t context = 16;
  std::int64_t vocab = 41;
};

inline model::Model small_model(model::Family family, const SmallModel& sizes) {
  model::Model model = families::defaults(family);
  model.layers = sizes.layers;
  model.width = sizes.width;
  model.heads = sizes.heads;
  model.kv_heads = sizes.kv_heads > 0 ? sizes.kv_heads : family == families::llama() ? sizes.heads / 2 : sizes.heads;
  model.head_dim = sizes.width / sizes.heads;
  model.ffn = sizes.ffn;
  model.context = sizes.context;
  model.vocab = sizes.vocab;
  return model;
}

}  // namespace plimsoll::tests
