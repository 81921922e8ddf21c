// What a user writes about a model: plain data, no mathematics. Its family (families/family.h) turns it into operators.
//
// Settings that several families share are members here; those that a family does not have keep their defaults and are ignored by it.
// What one family alone has is in `own`.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace plimsoll::families {
struct Family;
}

namespace plimsoll::model {

// The architecture: a row of the table of families, or one that is declared elsewhere and outlives the model.
using Family = const families::Family*;

enum class ActivationKind { gelu_tanh, gelu_erf, relu, silu };

// Rotary position scaling: `linear` divides positions by factor; `llama3` scales long wavelengths only.
enum class RopeScaling { none, linear, llama3 };

struct Rope {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  std::int64_t original_context = 8192;

  bool operator==(const Rope&) const = default;
};

struct Model {
  Family family = nullptr;  // see families::defaults
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 12;  // fewer than heads: grouped-query attention
  std::int64_t head_dim = 64;  // width / heads unless a configuration says otherwise
  std::int64_t ffn = 3072;
  std::int64_t context = 1024;  // longest sequence (size of learned position tables)
  std::int64_t vocab = 50257;
  bool tied = true;  // the head uses the token embedding
  double dropout = 0.0;
  double attention_dropout = 0.0;  // gpt2, bert
  double embedding_dropout = 0.0;
  double norm_eps = 1e-5;
  ActivationKind activation = ActivationKind::gelu_tanh;
  double init_std = 0.02;

  // llama, bert
  std::int64_t pad_token = -1;  // looking it up trains nothing: its row has no gradient from there; -1 = none

  // llama
  bool qkv_bias = false;            // Qwen2
  bool out_bias = false;            // of the attention's output projection; with qkv_bias what transformers calls attention_bias
  bool qk_norm = false;             // Qwen3: RMS norm of every query and key head
  std::int64_t sliding_window = 0;  // Mistral; 0 = full attention
  Rope rope;

  // bert
  std::int64_t token_types = 2;

  base::Json own;  // an object: by key, the settings that only this family has

  bool operator==(const Model&) const = default;
};

std::string_view name_of(ActivationKind kind);

}  // namespace plimsoll::model
