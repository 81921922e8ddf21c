// The keys of Llama and its relatives in Hugging Face's config.json: Llama, Mistral, Qwen2, Qwen3.
#include "families/llama/config_keys.h"

#include <array>

#include <fmt/ranges.h>

#include "base/error.h"
#include "families/families.h"

namespace plimsoll::families {

namespace {

using base::Json;
using model::Model;

// How the kinds differ.
struct LlamaKind {
  std::string_view type;
  bool qkv_bias = false;        // always
  bool attention_bias = false;  // can say that all four projections of the attention have biases
  bool qk_norm = false;
  bool window = false;                // can say that attention slides
  std::int64_t default_kv_heads = 0;  // where the file does not say; 0: as many as heads
  std::int64_t default_head_dim = 0;  // likewise; 0: width / heads
};

constexpr std::array<LlamaKind, 4> kLlamaKinds{{
    {.type = "llama", .attention_bias = true},
    {.type = "mistral", .window = true, .default_kv_heads = 8},
    {.type = "qwen2", .qkv_bias = true, .window = true, .default_kv_heads = 32},
    {.type = "qwen3", .attention_bias = true, .qk_norm = true, .window = true, .default_kv_heads = 32, .default_head_dim = 128},
}};

const LlamaKind& kind_named(std::string_view type) {
  for (const LlamaKind& kind : kLlamaKinds) {
    if (kind.type == type) return kind;
  }
  PLIMSOLL_CHECK(false, "{} is no kind of Llama", type);
}

// The rotary positions that `scaling` describes, an object with or without the base of the wavelengths; null: the plain ones.
model::Rope read_rope(const Json& config, const Json* scaling, std::int64_t context) {
  const ConfigReader top(config);
  const ConfigReader inner(scaling ? *scaling : config);
  model::Rope rope;
  rope.theta = inner.number("rope_theta", top.number("rope_theta", 1e4));
  for (const ConfigReader& read : {top, inner}) {
    if (read.number("partial_rotary_factor", 1.0) != 1.0) {
      base::bad_input("{}: \"partial_rotary_factor\" is not 1; Plimsoll turns whole heads", read.find("partial_rotary_factor")->where());
    }
  }
  if (!scaling) return rope;
  const std::string kind = inner.text("rope_type", inner.text("type", "default"));
  if (kind == "default") return rope;
  if (kind != "linear" && kind != "llama3") {
    base::bad_input("{}: rotary positions are scaled by \"{}\"; Plimsoll computes \"default\", \"linear\" and \"llama3\"", scaling->where(),
                    kind);
  }
  rope.factor = scaling->at("factor").as_double();
  rope.scaling = kind == "linear" ? model::RopeScaling::linear : model::RopeScaling::llama3;
  if (rope.scaling == model::RopeScaling::linear) return rope;
  rope.low_frequency_factor = scaling->at("low_freq_factor").as_double();
  rope.high_frequency_factor = scaling->at("high_freq_factor").as_double();
  rope.original_context = inner.count("original_max_position_embeddings", context);
  return rope;
}

// transformers 5 keeps everything about rotary positions in one object, 4 beside each other. Where both stand, the versions prefer
// different ones.
model::Rope read_rope(const Json& config, std::int64_t context) {
  const Json* parameters = ConfigReader(config).find("rope_parameters");
  const Json* scaling = ConfigReader(config).find("rope_scaling");
  const model::Rope rope = read_rope(config, parameters ? parameters : scaling, context);
  if (parameters && scaling && read_rope(config, scaling, context) != rope) {
    base::bad_input("{}: \"rope_scaling\" describes other rotary positions than \"rope_parameters\"; remove the one that does not hold",
                    scaling->where());
  }
  return rope;
}

// Qwen lets the first `max_window_layers` layers see everything; we compute all layers alike.
std::int64_t read_qwen_window(const Json& config, std::int64_t layers) {
  const ConfigReader read(config);
  std::int64_t sliding = 0;
  if (const Json* types = read.find("layer_types")) {
    for (const Json& type : types->as_array()) {
      if (type.as_string() != "full_attention" && type.as_string() != "sliding_attention")
        type.fail_expected("full_attention or sliding_attention");
      sliding += type.as_string() == "sliding_attention" ? 1 : 0;
    }
    if (std::ssize(types->as_array()) != layers) types->fail_expected(fmt::format("one for each of {} layers", layers));
  } else if (read.flag("use_sliding_window", false) && read.find("sliding_window")) {
    const Json* full = read.find("max_window_layers");
    sliding = layers - std::min(layers, full ? full->as_integer() : 28);
  }
  if (sliding == 0) return 0;
  if (sliding != layers) {
    base::bad_input("{}: attention slides in {} of {} layers; Plimsoll computes all layers alike", config.where(), sliding, layers);
  }
  return read.count("sliding_window", 4096);
}

std::int64_t read_window(const LlamaKind& kind, const Json& config, std::int64_t layers) {
  if (kind.type == "mistral")
    return config.find("sliding_window") && config.at("sliding_window").is_null() ? 0 : ConfigReader(config).count("sliding_window", 4096);
  return kind.window ? read_qwen_window(config, layers) : 0;
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

void set_window(const LlamaKind& kind, const Model& model, Json& config) {
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

}  // namespace

Model read_llama(std::string_view type, const Json& config) {
  const LlamaKind& kind = kind_named(type);
  const ConfigReader read(config);
  if (!kind.attention_bias) read.require("attention_bias", false, "the projections of this kind of model");
  read.require("mlp_bias", false, "this family's feed-forward layers");
  Model model = defaults(llama());
  model.layers = read.count("num_hidden_layers");
  model.width = read.count("hidden_size");
  model.heads = read.count("num_attention_heads");
  const bool kv_said = config.find("num_key_value_heads") != nullptr;
  model.kv_heads = read.count("num_key_value_heads", kv_said || kind.default_kv_heads == 0 ? model.heads : kind.default_kv_heads);
  if (read.find("head_dim")) {
    model.head_dim = read.count("head_dim");
  } else {
    model.head_dim = kind.default_head_dim != 0 ? kind.default_head_dim : head_dim_in(config, model);
  }
  model.ffn = read.count("intermediate_size");
  model.context = read.count("max_position_embeddings");
  model.vocab = read.count("vocab_size");
  model.tied = read.flag("tie_word_embeddings", false);
  model.pad_token = read.pad_token(model.vocab, -1);
  model.attention_dropout = read.number("attention_dropout", 0.0);
  model.norm_eps = read.number("rms_norm_eps", 1e-6);
  model.activation = read.activation("hidden_act", "silu");
  model.init_std = read.number("initializer_range", 0.02);
  model.out_bias = kind.attention_bias && read.flag("attention_bias", false);
  model.qkv_bias = kind.qkv_bias || model.out_bias;
  model.qk_norm = kind.qk_norm;
  model.sliding_window = read_window(kind, config, model.layers);
  model.rope = read_rope(config, model.context);
  return model;
}

void set_llama(std::string_view type, const Model& model, Json& config) {
  const LlamaKind& kind = kind_named(type);
  set_common_keys(model, config);
  config.set("num_key_value_heads", model.kv_heads);
  config.set("head_dim", model.head_dim);
  config.set("attention_dropout", model.attention_dropout);
  config.set("rms_norm_eps", model.norm_eps);
  if (kind.attention_bias) config.set("attention_bias", model.out_bias);
  set_rope(model.rope, config);
  if (kind.window) set_window(kind, model, config);
}

bool describes_llama(std::string_view type, const Model& model) {
  const LlamaKind& kind = kind_named(type);
  // transformers refuses a Llama whose width its heads do not divide, whatever head_dim says; a Mistral is the same model there.
  if (kind.type == "llama" && model.width % model.heads != 0) return false;
  const bool all_biases = model.qkv_bias && model.out_bias;
  const bool biases = all_biases ? kind.attention_bias : kind.qkv_bias == model.qkv_bias && !model.out_bias;
  return biases && kind.qk_norm == model.qk_norm && (kind.window || model.sliding_window == 0);
}

std::string why_no_llama(const Model& model) {
  std::vector<std::string_view> parts;
  if (model.qkv_bias) parts.emplace_back("biases of queries, keys and values (\"qkv_bias\")");
  if (model.out_bias) parts.emplace_back("a bias of the attention's output (\"out_bias\")");
  if (model.qk_norm) parts.emplace_back("norms of queries and keys (\"qk_norm\")");
  if (model.sliding_window > 0) parts.emplace_back("a sliding window");
  std::vector<std::string_view> types;
  for (const LlamaKind& kind : kLlamaKinds) types.push_back(kind.type);
  return fmt::format("no Hugging Face model has exactly this together: {}; of {} none can hold it", fmt::join(parts, ", "),
                     fmt::join(types, ", "));
}

}  // namespace plimsoll::families
