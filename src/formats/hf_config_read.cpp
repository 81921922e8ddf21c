// The reading half of hf_config.h: one function per family, over a reader that knows defaults and places.
#include <string>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "formats/hf_config.h"
#include "formats/hf_config_kind.h"
#include "io/files.h"

namespace plimsoll::formats {

namespace {

using base::Json;
using model::ActivationKind;
using model::Model;

constexpr std::int64_t kMaxConfigBytes = std::int64_t{4} << 20;

// Largest believable values, far above any real model: they keep every product of sizes within 64 bits.
constexpr std::pair<std::string_view, int> kLargestPowers[] = {{"vocab_size", 26},
                                                               {"n_positions", 30},
                                                               {"max_position_embeddings", 30},
                                                               {"original_max_position_embeddings", 30},
                                                               {"sliding_window", 30},
                                                               {"hidden_size", 18},
                                                               {"n_embd", 18},
                                                               {"intermediate_size", 22},
                                                               {"n_inner", 22}};
constexpr int kLargestPower = 12;  // layers, heads, head size, token types

// Python writes null for "not set", which is the same as absent.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  const Json* find(std::string_view key) const {
    const Json* value = json_.find(key);
    return value && !value->is_null() ? value : nullptr;
  }
  std::int64_t count(std::string_view key) const {
    if (!find(key)) base::bad_input("{}: \"{}\" is missing, without which the model's size is not known", json_.where(), key);
    return count(key, 0);
  }
  std::int64_t count(std::string_view key, std::int64_t otherwise) const {
    const Json* value = find(key);
    if (!value) return otherwise;
    int power = kLargestPower;
    for (const auto& [name, larger] : kLargestPowers) power = name == key ? larger : power;
    const std::int64_t count = value->as_integer();
    if (count < 1 || count > std::int64_t{1} << power) value->fail_expected(fmt::format("a number from 1 to {}", std::int64_t{1} << power));
    return count;
  }
  double number(std::string_view key, double otherwise) const { return find(key) ? find(key)->as_double() : otherwise; }
  bool flag(std::string_view key, bool otherwise) const { return find(key) ? find(key)->as_bool() : otherwise; }
  std::string text(std::string_view key, std::string_view otherwise) const {
    return find(key) ? find(key)->as_string() : std::string(otherwise);
  }

  // As torch counts: negative ones from the end of the vocabulary.
  std::int64_t pad_token(std::int64_t vocab, std::int64_t otherwise) const {
    const Json* value = json_.find("pad_token_id");
    if (value == nullptr) return otherwise < vocab ? otherwise : -1;
    if (value->is_null()) return -1;
    const std::int64_t id = value->as_integer();
    if (id < -vocab || id >= vocab) value->fail_expected(fmt::format("a token of {}, or null", vocab));
    return id < 0 ? vocab + id : id;
  }

  void require(std::string_view key, bool value, std::string_view why) const {
    if (flag(key, value) != value) {
      base::bad_input("{}: \"{}\" is {}; Plimsoll computes {} only with {}", find(key)->where(), key, !value, why, value);
    }
  }
  ActivationKind activation(std::string_view key, std::string_view otherwise) const {
    const std::string name = text(key, otherwise);
    if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return ActivationKind::gelu_tanh;
    if (name == "gelu" || name == "gelu_python") return ActivationKind::gelu_erf;
    if (name == "relu") return ActivationKind::relu;
    if (name == "silu" || name == "swish") return ActivationKind::silu;
    find(key)->fail_expected("an activation that Plimsoll computes: gelu, gelu_new, gelu_pytorch_tanh, relu or silu");
  }

 private:
  const Json& json_;
};

std::int64_t head_dim_of(const Json& config, const Model& model) {
  if (model.width % model.heads != 0) {
    base::bad_input("{}: a width of {} does not divide into {} heads", config.where(), model.width, model.heads);
  }
  return model.width / model.heads;
}

Model read_gpt2(const Json& config) {
  const Reader read(config);
  read.require("scale_attn_weights", true, "GPT-2's attention");
  read.require("scale_attn_by_inverse_layer_idx", false, "GPT-2's attention");
  read.require("add_cross_attention", false, "GPT-2");
  Model model = model::family_defaults(model::Family::gpt2);
  model.layers = read.count("n_layer");
  model.width = read.count("n_embd");
  model.heads = model.kv_heads = read.count("n_head");
  model.head_dim = head_dim_of(config, model);
  model.ffn = read.count("n_inner", 4 * model.width);
  model.context = read.count("n_positions");
  model.vocab = read.count("vocab_size");
  model.tied = read.flag("tie_word_embeddings", true);
  model.dropout = read.number("resid_pdrop", 0.1);
  model.attention_dropout = read.number("attn_pdrop", 0.1);
  model.embedding_dropout = read.number("embd_pdrop", 0.1);
  model.norm_eps = read.number("layer_norm_epsilon", 1e-5);
  model.activation = read.activation("activation_function", "gelu_new");
  model.init_std = read.number("initializer_range", 0.02);
  return model;
}

Model read_bert(const Json& config) {
  const Reader read(config);
  read.require("is_decoder", false, "BERT");
  read.require("add_cross_attention", false, "BERT");
  if (const std::string positions = read.text("position_embedding_type", "absolute"); positions != "absolute") {
    base::bad_input("{}: \"position_embedding_type\" is \"{}\"; Plimsoll computes BERT with \"absolute\" positions only",
                    read.find("position_embedding_type")->where(), positions);
  }
  Model model = model::family_defaults(model::Family::bert);
  model.layers = read.count("num_hidden_layers");
  model.width = read.count("hidden_size");
  model.heads = model.kv_heads = read.count("num_attention_heads");
  model.head_dim = head_dim_of(config, model);
  model.ffn = read.count("intermediate_size");
  model.context = read.count("max_position_embeddings");
  model.vocab = read.count("vocab_size");
  model.token_types = read.count("type_vocab_size", 2);
  model.pad_token = read.pad_token(model.vocab, 0);
  model.tied = read.flag("tie_word_embeddings", true);
  model.dropout = model.embedding_dropout = read.number("hidden_dropout_prob", 0.1);
  model.attention_dropout = read.number("attention_probs_dropout_prob", 0.1);
  model.norm_eps = read.number("layer_norm_eps", 1e-12);
  model.activation = read.activation("hidden_act", "gelu");
  model.init_std = read.number("initializer_range", 0.02);
  return model;
}

// The rotary positions that `scaling` describes, an object with or without the base of the wavelengths; null: the plain ones.
model::Rope read_rope(const Json& config, const Json* scaling, std::int64_t context) {
  const Reader top(config);
  const Reader inner(scaling ? *scaling : config);
  model::Rope rope;
  rope.theta = inner.number("rope_theta", top.number("rope_theta", 1e4));
  for (const Reader& read : {top, inner}) {
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
  const Json* parameters = Reader(config).find("rope_parameters");
  const Json* scaling = Reader(config).find("rope_scaling");
  const model::Rope rope = read_rope(config, parameters ? parameters : scaling, context);
  if (parameters && scaling && read_rope(config, scaling, context) != rope) {
    base::bad_input("{}: \"rope_scaling\" describes other rotary positions than \"rope_parameters\"; remove the one that does not hold",
                    scaling->where());
  }
  return rope;
}

// Qwen lets the first `max_window_layers` layers see everything; we compute all layers alike.
std::int64_t read_qwen_window(const Json& config, std::int64_t layers) {
  const Reader read(config);
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

std::int64_t read_window(const HfKind& kind, const Json& config, std::int64_t layers) {
  if (kind.type == "mistral")
    return config.find("sliding_window") && config.at("sliding_window").is_null() ? 0 : Reader(config).count("sliding_window", 4096);
  return kind.window ? read_qwen_window(config, layers) : 0;
}

Model read_llama(const HfKind& kind, const Json& config) {
  const Reader read(config);
  if (!kind.attention_bias) read.require("attention_bias", false, "the projections of this kind of model");
  read.require("mlp_bias", false, "this family's feed-forward layers");
  Model model = model::family_defaults(model::Family::llama);
  model.layers = read.count("num_hidden_layers");
  model.width = read.count("hidden_size");
  model.heads = read.count("num_attention_heads");
  const bool kv_said = config.find("num_key_value_heads") != nullptr;
  model.kv_heads = read.count("num_key_value_heads", kv_said || kind.default_kv_heads == 0 ? model.heads : kind.default_kv_heads);
  if (read.find("head_dim")) {
    model.head_dim = read.count("head_dim");
  } else {
    model.head_dim = kind.default_head_dim != 0 ? kind.default_head_dim : head_dim_of(config, model);
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

Model read_family(const Json& config) {
  const HfKind& kind = hf_kind_of(config);
  switch (kind.family) {
    case model::Family::gpt2: return read_gpt2(config);
    case model::Family::bert: return read_bert(config);
    case model::Family::llama: return read_llama(kind, config);
  }
  PLIMSOLL_CHECK(false, "family of {}", kind.type);
}

}  // namespace

Json read_hf_config_json(io::FileSystem& file_system, const io::Path& folder) {
  const io::Path path = folder / "config.json";
  const auto found = file_system.status(folder);
  if (!found) base::bad_input("there is no folder '{}'; expected a Hugging Face folder, which holds config.json", folder.string());
  if (found->kind != io::EntryKind::directory)
    base::bad_input("'{}' is a file; expected a Hugging Face folder, which holds config.json", folder.string());
  if (!file_system.status(path)) base::bad_input("'{}' is no Hugging Face folder: it holds no config.json", folder.string());
  return base::parse_json(io::read_text(file_system, path, kMaxConfigBytes), path.string(), {.strict = true});
}

Model model_from_hf_config(const Json& config) {
  if (Reader(config).find("quantization_config")) {
    base::bad_input("{}: the weights are quantized; Plimsoll trains those stored in f32, bf16, f16 or f64",
                    config.at("quantization_config").where());
  }
  const Model model = read_family(config);
  if (const auto problems = model::problems(model); !problems.empty()) {
    base::bad_input("{}: this is no model: {}", config.where(), fmt::join(problems, "; "));
  }
  return model;
}

Model read_hf_config(io::FileSystem& file_system, const io::Path& folder) {
  return model_from_hf_config(read_hf_config_json(file_system, folder));
}

}  // namespace plimsoll::formats
