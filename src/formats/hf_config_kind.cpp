#include "formats/hf_config_kind.h"

#include <array>

#include <fmt/ranges.h>

#include "base/error.h"

namespace plimsoll::formats {

namespace {

using model::Family;

// In the order in which a model without a configuration of its own takes the first that fits.
constexpr std::array<HfKind, 6> kKinds{{
    {"gpt2", "GPT2LMHeadModel", Family::gpt2},
    {"bert", "BertForMaskedLM", Family::bert},
    {"llama", "LlamaForCausalLM", Family::llama},
    {"mistral", "MistralForCausalLM", Family::llama, false, false, true, 8, 0},
    {"qwen2", "Qwen2ForCausalLM", Family::llama, true, false, true, 32, 0},
    {"qwen3", "Qwen3ForCausalLM", Family::llama, false, true, true, 32, 128},
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
  return kind.qkv_bias == model.qkv_bias && kind.qk_norm == model.qk_norm && (kind.window || model.sliding_window == 0);
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
  base::bad_input("no Hugging Face model has q/k/v biases and norms of queries and keys together{}; of {} none can hold this one",
                  model.sliding_window > 0 ? " with a sliding window" : "", known_types());
}

}  // namespace plimsoll::formats
