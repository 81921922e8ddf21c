#include "model/model.h"

#include <array>
#include <functional>

#include <fmt/format.h>

namespace plimsoll::model {

namespace {

Model gpt2_model(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  Model model = family_defaults(Family::gpt2);
  model.layers = layers;
  model.width = width;
  model.heads = model.kv_heads = heads;
  model.head_dim = width / heads;
  model.ffn = 4 * width;
  return model;
}

Model bert_model(std::int64_t layers, std::int64_t width, std::int64_t heads) {
  Model model = family_defaults(Family::bert);
  model.layers = layers;
  model.width = width;
  model.heads = model.kv_heads = heads;
  model.head_dim = width / heads;
  model.ffn = 4 * width;
  return model;
}

struct LlamaSize {
  std::int64_t layers, width, heads, kv_heads, ffn;
  bool tied;
};

Model llama_model(const LlamaSize& size) {
  Model model = family_defaults(Family::llama);
  model.layers = size.layers;
  model.width = size.width;
  model.heads = size.heads;
  model.kv_heads = size.kv_heads;
  model.head_dim = size.width / size.heads;
  model.ffn = size.ffn;
  model.tied = size.tied;
  model.vocab = 128256;
  model.rope = {.theta = 500000.0, .scaling = RopeScaling::llama3, .factor = 8.0, .original_context = 8192};
  return model;
}

Model llama_135m() {
  Model model = llama_model({30, 576, 9, 3, 1536, true});
  model.vocab = 49152;
  model.context = 2048;
  model.rope = {};
  return model;
}

struct Preset {
  std::string_view name;
  Model (*make)();
};

constexpr std::array<Preset, 13> kPresets{{
    {"gpt2", [] { return gpt2_model(12, 768, 12); }},
    {"gpt2-medium", [] { return gpt2_model(24, 1024, 16); }},
    {"gpt2-large", [] { return gpt2_model(36, 1280, 20); }},
    {"gpt2-xl", [] { return gpt2_model(48, 1600, 25); }},
    {"gpt2-tiny", [] { return gpt2_model(4, 128, 4); }},
    {"llama-135m", llama_135m},
    {"llama-1b", [] { return llama_model({16, 2048, 32, 8, 8192, true}); }},
    {"llama-3b", [] { return llama_model({28, 3072, 24, 8, 8192, true}); }},
    {"llama-8b", [] { return llama_model({32, 4096, 32, 8, 14336, false}); }},
    {"llama-13b", [] { return llama_model({40, 5120, 40, 40, 13824, false}); }},
    {"llama-70b", [] { return llama_model({80, 8192, 64, 8, 28672, false}); }},
    {"bert-base", [] { return bert_model(12, 768, 12); }},
    {"bert-large", [] { return bert_model(24, 1024, 16); }},
}};

}  // namespace

std::string_view name_of(Family family) {
  switch (family) {
    case Family::gpt2: return "gpt2";
    case Family::llama: return "llama";
    case Family::bert: return "bert";
  }
  return "?";
}

std::string_view name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu_tanh: return "gelu_tanh";
    case ActivationKind::gelu_erf: return "gelu_erf";
    case ActivationKind::relu: return "relu";
    case ActivationKind::silu: return "silu";
  }
  return "?";
}

Model family_defaults(Family family) {
  Model model;
  model.family = family;
  if (family == Family::llama) {
    model.norm_eps = 1e-5;
    model.activation = ActivationKind::silu;
    model.context = 8192;
    model.vocab = 32000;
    model.ffn = 2048;
    model.tied = false;
  }
  if (family == Family::bert) {
    model.norm_eps = 1e-12;
    model.activation = ActivationKind::gelu_erf;
    model.context = 512;
    model.vocab = 30522;
  }
  return model;
}

std::optional<Model> preset(std::string_view name) {
  for (const Preset& candidate : kPresets) {
    if (candidate.name == name) return candidate.make();
  }
  return std::nullopt;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& candidate : kPresets) names.emplace_back(candidate.name);
  return names;
}

std::vector<std::string> problems(const Model& model) {
  std::vector<std::string> found;
  const auto expect = [&](bool holds, std::string reason) {
    if (!holds) found.push_back(std::move(reason));
  };
  const auto at_least_one = [&](std::string_view name, std::int64_t value) {
    expect(value >= 1, fmt::format("\"{}\" is {}; expected at least 1", name, value));
  };
  at_least_one("layers", model.layers);
  at_least_one("width", model.width);
  at_least_one("heads", model.heads);
  at_least_one("kv_heads", model.kv_heads);
  at_least_one("head_dim", model.head_dim);
  at_least_one("ffn", model.ffn);
  at_least_one("context", model.context);
  at_least_one("vocab", model.vocab);
  if (!found.empty()) return found;
  expect(model.heads % model.kv_heads == 0,
         fmt::format("\"heads\" is {} and \"kv_heads\" {}; expected heads to be a multiple of kv_heads", model.heads, model.kv_heads));
  if (model.family == Family::llama) {
    expect(model.head_dim % 2 == 0, fmt::format("head_dim is {}; rotary positions need an even number", model.head_dim));
    expect(model.rope.theta > 0, fmt::format("\"rope.theta\" is {}; expected more than 0", model.rope.theta));
    expect(model.rope.factor > 0, fmt::format("\"rope.factor\" is {}; expected more than 0", model.rope.factor));
    expect(model.sliding_window >= 0, fmt::format("\"sliding_window\" is {}; expected 0 (off) or more", model.sliding_window));
  } else {
    expect(model.kv_heads == model.heads,
           fmt::format("\"kv_heads\" is {} and \"heads\" {}; the {} family has no grouped-query attention, expected them equal",
                       model.kv_heads, model.heads, name_of(model.family)));
  }
  expect(model.pad_token >= -1 && model.pad_token < model.vocab,
         fmt::format("\"pad_token\" is {}; expected a token of {}, or -1 for none", model.pad_token, model.vocab));
  if (model.family == Family::bert) at_least_one("token_types", model.token_types);
  for (const auto& [name, rate] : {std::pair<std::string_view, double>{"dropout", model.dropout},
                                   {"attention_dropout", model.attention_dropout},
                                   {"embedding_dropout", model.embedding_dropout}}) {
    expect(rate >= 0.0 && rate < 1.0, fmt::format("\"{}\" is {}; expected 0 <= rate < 1", name, rate));
  }
  expect(model.norm_eps > 0.0, fmt::format("\"norm_eps\" is {}; expected more than 0", model.norm_eps));
  return found;
}

std::int64_t parameter_count(const Model& model) {
  const std::int64_t width = model.width;
  const std::int64_t query = model.heads * model.head_dim;
  const std::int64_t packed = query + 2 * model.kv_heads * model.head_dim;
  const std::int64_t head = model.tied ? 0 : model.vocab * width;
  if (model.family == Family::llama) {
    const std::int64_t attention = packed * width + (model.qkv_bias ? packed : 0) + (model.qk_norm ? 2 * model.head_dim : 0) +
                                   width * query + (model.out_bias ? width : 0);
    const std::int64_t block = attention + 3 * model.ffn * width + 2 * width;
    return model.vocab * width + model.layers * block + width + head;
  }
  const std::int64_t block = packed * width + packed + width * query + width + 2 * model.ffn * width + model.ffn + width + 4 * width;
  const std::int64_t tables = (model.vocab + model.context) * width;
  if (model.family == Family::gpt2) return tables + model.layers * block + 2 * width + head;
  // bert: token types, embedding norm, MLM transform (dense + norm) and the head's bias
  return tables + model.token_types * width + 2 * width + model.layers * block + width * width + 3 * width + model.vocab + head;
}

}  // namespace plimsoll::model
