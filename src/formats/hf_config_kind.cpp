#include "formats/hf_config_kind.h"

#include <array>

#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::formats {

namespace {

using model::Family;

// In the order in which a model without a configuration of its own takes the first that fits.
constexpr std::array<HfKind, 6> kKinds{{
    {.type = "gpt2", .architecture = "GPT2LMHeadModel", .family = Family::gpt2},
    {.type = "bert", .architecture = "BertForMaskedLM", .family = Family::bert},
    {.type = "llama", .architecture = "LlamaForCausalLM", .family = Family::llama, .attention_bias = true},
    {.type = "mistral", .architecture = "MistralForCausalLM", .family = Family::llama, .window = true, .default_kv_heads = 8},
    {.type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .family = Family::llama,
     .qkv_bias = true,
     .window = true,
     .default_kv_heads = 32},
    {.type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .family = Family::llama,
     .attention_bias = true,
     .qk_norm = true,
     .window = true,
     .default_kv_heads = 32,
     .default_head_dim = 128},
}};

const HfKind* find_kind(std::string_view type) {
  for (const HfKind& kind : kKinds) {
    if (kind.type == type) return &kind;
  }
  return nullptr;
}

bool describes(const HfKind& kind, const model::Model& model) {
  if (kind.family != model.family) return false;
  if (model.family != Family::llama) return model.head_dim * model.heads == model.width;
  // transformers refuses a Llama whose width its heads do not divide, whatever head_dim says; a Mistral is the same model there.
  if (kind.type == "llama" && model.width % model.heads != 0) return false;
  const bool all_biases = model.qkv_bias && model.out_bias;
  const bool biases = all_biases ? kind.attention_bias : kind.qkv_bias == model.qkv_bias && !model.out_bias;
  return biases && kind.qk_norm == model.qk_norm && (kind.window || model.sliding_window == 0);
}

std::string known_types() {
  std::vector<std::string_view> types;
  for (const HfKind& kind : kKinds) types.push_back(kind.type);
  return fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace

const HfKind& hf_kind_of(const base::Json& config) {
  const base::Json& type = config.at("model_type");
  const HfKind* kind = find_kind(type.as_string());
  if (!kind) type.fail_expected("a model that Plimsoll computes: " + known_types());
  return *kind;
}

const HfKind& hf_kind_for(const model::Model& model, const base::Json& original) {
  const base::Json* type = original.is_object() ? original.find("model_type") : nullptr;
  if (type && type->is_string()) {
    const HfKind* kind = find_kind(type->as_string());
    if (kind && describes(*kind, model)) return *kind;
  }
  for (const HfKind& kind : kKinds) {
    if (describes(kind, model)) return kind;
  }
  if (model.family != Family::llama) {
    base::bad_input("{} heads of size {} do not make the width {}, and no Hugging Face model of this family can hold that", model.heads,
                    model.head_dim, model.width);
  }
  std::vector<std::string_view> parts;
  if (model.qkv_bias) parts.emplace_back("biases of queries, keys and values (\"qkv_bias\")");
  if (model.out_bias) parts.emplace_back("a bias of the attention's output (\"out_bias\")");
  if (model.qk_norm) parts.emplace_back("norms of queries and keys (\"qk_norm\")");
  if (model.sliding_window > 0) parts.emplace_back("a sliding window");
  base::bad_input("no Hugging Face model has exactly this together: {}; of {} none can hold it", fmt::join(parts, ", "), known_types());
}

}  // namespace plimsoll::formats
