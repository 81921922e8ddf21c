// The writing half of hf_config.h: the keys that we know, laid over what was read.
#include <optional>
#include <string_view>

#include "base/error.h"
#include "formats/hf_config.h"
#include "formats/hf_config_kind.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

using base::Json;
using model::Model;

std::string_view activation_name(model::ActivationKind kind) {
  switch (kind) {
    case model::ActivationKind::gelu_tanh: return "gelu_new";
    case model::ActivationKind::gelu_erf: return "gelu";
    case model::ActivationKind::relu: return "relu";
    case model::ActivationKind::silu: return "silu";
  }
  return "?";
}

std::string_view torch_name(FileDType dtype) {
  switch (dtype) {
    case FileDType::f32: return "float32";
    case FileDType::bf16: return "bfloat16";
    case FileDType::f16: return "float16";
    case FileDType::f64: return "float64";
    default: break;
  }
  PLIMSOLL_CHECK(false, "weights stored as {}", name_of(dtype));
}

void set_gpt2(const Model& model, Json& config) {
  config.set("n_layer", model.layers);
  config.set("n_embd", model.width);
  config.set("n_head", model.heads);
  config.set("n_inner", model.ffn);
  config.set("n_positions", model.context);
  config.set("resid_pdrop", model.dropout);
  config.set("attn_pdrop", model.attention_dropout);
  config.set("embd_pdrop", model.embedding_dropout);
  config.set("layer_norm_epsilon", model.norm_eps);
  config.set("activation_function", activation_name(model.activation));
}

// Keys that BERT and the Llama family share.
void set_common(const Model& model, Json& config) {
  config.set("num_hidden_layers", model.layers);
  config.set("hidden_size", model.width);
  config.set("num_attention_heads", model.heads);
  config.set("intermediate_size", model.ffn);
  config.set("max_position_embeddings", model.context);
  config.set("hidden_act", activation_name(model.activation));
  config.set("pad_token_id", model.pad_token >= 0 ? Json(model.pad_token) : Json());
}

void set_bert(const Model& model, Json& config) {
  set_common(model, config);
  config.set("type_vocab_size", model.token_types);
  config.set("hidden_dropout_prob", model.dropout);
  config.set("attention_probs_dropout_prob", model.attention_dropout);
  config.set("layer_norm_eps", model.norm_eps);
}

void set_rope(const model::Rope& rope, Json& config) {
  Json scaling = Json::object({{"rope_type", rope.scaling == model::RopeScaling::none     ? "default"
                                             : rope.scaling == model::RopeScaling::linear ? "linear"
                                                                                          : "llama3"}});
  if (rope.scaling != model::RopeScaling::none) scaling.set("factor", rope.factor);
  if (rope.scaling == model::RopeScaling::llama3) {
    scaling.set("low_freq_factor", rope.low_frequency_factor);
    scaling.set("high_freq_factor", rope.high_frequency_factor);
    scaling.set("original_max_position_embeddings", rope.original_context);
  }
  if (config.find("rope_parameters")) {  // transformers 5
    scaling.set("rope_theta", rope.theta);
    config.set("rope_parameters", std::move(scaling));
    return;
  }
  config.set("rope_theta", rope.theta);  // transformers 4, which 5 reads as well
  config.set("rope_scaling", rope.scaling == model::RopeScaling::none ? Json() : std::move(scaling));
}

void set_window(const HfKind& kind, const Model& model, Json& config) {
  const bool slides = model.sliding_window > 0;
  config.set("sliding_window", slides ? Json(model.sliding_window) : Json());
  if (kind.type == "mistral") return;
  config.set("use_sliding_window", slides);
  config.set("max_window_layers", slides ? 0 : model.layers);
  if (!config.find("layer_types")) return;
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < model.layers; ++layer) types.push(slides ? "sliding_attention" : "full_attention");
  config.set("layer_types", std::move(types));
}

void set_llama(const HfKind& kind, const Model& model, Json& config) {
  set_common(model, config);
  config.set("num_key_value_heads", model.kv_heads);
  config.set("head_dim", model.head_dim);
  config.set("attention_dropout", model.attention_dropout);
  config.set("rms_norm_eps", model.norm_eps);
  if (kind.attention_bias) config.set("attention_bias", model.out_bias);
  set_rope(model.rope, config);
  if (kind.window) set_window(kind, model, config);
}

void set_model(const HfKind& kind, const Model& model, Json& config) {
  config.set("model_type", kind.type);
  config.set("vocab_size", model.vocab);
  config.set("tie_word_embeddings", model.tied);
  config.set("initializer_range", model.init_std);
  switch (kind.family) {
    case model::Family::gpt2: return set_gpt2(model, config);
    case model::Family::bert: return set_bert(model, config);
    case model::Family::llama: return set_llama(kind, model, config);
  }
}

std::optional<Model> described_by(const Json& config) {
  if (!config.is_object()) return std::nullopt;
  try {
    return model_from_hf_config(config);
  } catch (const base::Error&) {
    return std::nullopt;
  }
}

// Only where the file is new: transformers otherwise believes certain tokens to be in every vocabulary.
void set_special_tokens(const Model& model, const HfEnds& ends, Json& config) {
  constexpr std::int64_t kGpt2Vocab = 50257;
  const auto id = [](const std::optional<std::int32_t>& token) { return token ? Json(*token) : Json(); };
  if (!ends.begin && !ends.end && model.family == model::Family::gpt2 && model.vocab == kGpt2Vocab) {
    config.set("bos_token_id", kGpt2Vocab - 1);
    config.set("eos_token_id", kGpt2Vocab - 1);
    return;
  }
  if (model.family == model::Family::bert && !ends.begin && !ends.end) return;
  config.set("bos_token_id", id(ends.begin));
  config.set("eos_token_id", id(ends.end));
}

}  // namespace

Json hf_config_from_model(const Model& model, const Json& original, FileDType dtype, const HfEnds& ends) {
  const HfKind& kind = hf_kind_for(model, original);
  Json config = original.is_object() ? original : Json::object();
  config.set("architectures", Json::array({Json(kind.architecture)}));
  if (described_by(original) != model) set_model(kind, model, config);
  if (!original.is_object()) set_special_tokens(model, ends, config);
  // transformers 5 writes "dtype" and reads both; 4 mostly knows the other.
  config.set(config.find("dtype") ? "dtype" : "torch_dtype", torch_name(dtype));
  return config;
}

void write_hf_config(io::FileSystem& file_system, const io::Path& folder, const Json& config) {
  io::replace_file(file_system, folder / "config.json", io::as_bytes(base::write_json(config, base::JsonLayout::pretty) + "\n"));
}

}  // namespace plimsoll::formats
