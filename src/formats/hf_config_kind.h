// The kinds of configuration behind our three families: what their `model_type` is called and how they differ.
#pragma once

#include <string_view>

#include "base/json.h"
#include "model/model.h"

namespace plimsoll::formats {

struct HfKind {
  std::string_view type;          // "model_type"
  std::string_view architecture;  // with the head that we train
  model::Family family;
  bool qkv_bias = false;        // always
  bool attention_bias = false;  // can say that all four projections of the attention have biases
  bool qk_norm = false;
  bool window = false;                // can say that attention slides
  std::int64_t default_kv_heads = 0;  // where the file does not say; 0: as many as heads
  std::int64_t default_head_dim = 0;  // likewise; 0: width / heads
};

// Of a configuration that was read; refuses types that we do not compute.
const HfKind& hf_kind_of(const base::Json& config);
// For writing: the type in `original` where it can describe the model, else the simplest that can.
const HfKind& hf_kind_for(const model::Model& model, const base::Json& original);

}  // namespace plimsoll::formats
