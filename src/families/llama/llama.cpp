#include "families/llama/llama.h"

#include <fmt/format.h>

#include "families/families.h"
#include "families/transformer.h"

namespace plimsoll::families {

namespace {

using model::Model;

struct LlamaSize {
  std::int64_t layers, width, heads, kv_heads, ffn;
  bool tied;
};

Model llama_model(const LlamaSize& size) {
  Model model = sized(llama(), size.layers, size.width, size.heads);
  model.kv_heads = size.kv_heads;
  model.ffn = size.ffn;
  model.tied = size.tied;
  model.vocab = 128256;
  model.rope = {.theta = 500000.0, .scaling = model::RopeScaling::llama3, .factor = 8.0, .original_context = 8192};
  return model;
}

Model llama_135m() {
  Model model = llama_model({30, 576, 9, 3, 1536, true});
  model.vocab = 49152;
  model.context = 2048;
  model.rope = {};
  return model;
}

void llama_defaults(Model& model) {
  model.norm_eps = 1e-5;
  model.activation = model::ActivationKind::silu;
  model.context = 8192;
  model.vocab = 32000;
  model.ffn = 2048;
  model.tied = false;
}

void llama_problems(const Model& model, std::vector<std::string>& found) {
  if (!transformer_problems(model, found)) return;
  const auto expect = [&](bool holds, std::string reason) {
    if (!holds) found.push_back(std::move(reason));
  };
  expect(model.head_dim % 2 == 0, fmt::format("head_dim is {}; rotary positions need an even number", model.head_dim));
  expect(model.rope.theta > 0, fmt::format("\"rope.theta\" is {}; expected more than 0", model.rope.theta));
  expect(model.rope.factor > 0, fmt::format("\"rope.factor\" is {}; expected more than 0", model.rope.factor));
  expect(model.sliding_window >= 0, fmt::format("\"sliding_window\" is {}; expected 0 (off) or more", model.sliding_window));
}

std::int64_t llama_parameters(const Model& model) {
  const std::int64_t width = model.width;
  const std::int64_t query = model.heads * model.head_dim;
  const std::int64_t packed = query + 2 * model.kv_heads * model.head_dim;
  const std::int64_t attention = packed * width + (model.qkv_bias ? packed : 0) + (model.qk_norm ? 2 * model.head_dim : 0) + width * query +
                                 (model.out_bias ? width : 0);
  const std::int64_t block = attention + 3 * model.ffn * width + 2 * width;
  return model.vocab * width + model.layers * block + width + (model.tied ? 0 : model.vocab * width);
}

// A preset's grouping stays when only the number of heads is changed.
std::vector<Derived> llama_derived() {
  return {{.key = "kv_heads",
           .from = {"heads"},
           .how = "heads",
           .value = [](const Model& model) { return base::Json(model.heads); },
           .in_presets = false},
          {.key = "ffn", .from = {"width"}, .how = "8/3 x width, rounded up to a multiple of 256", .value = [](const Model& model) {
             return base::Json((8 * model.width + 767) / 768 * 256);
           }}};
}

}  // namespace

model::Family llama() {
  static const Family kRow{
      .name = "llama",
      .settings = transformer_settings({"pad_token", "qkv_bias", "out_bias", "qk_norm", "sliding_window", "rope.theta", "rope.scaling",
                                        "rope.factor", "rope.low_frequency_factor", "rope.high_frequency_factor", "rope.original_context"}),
      .derived = llama_derived(),
      .presets = {{"llama-135m", llama_135m},
                  {"llama-1b", [] { return llama_model({16, 2048, 32, 8, 8192, true}); }},
                  {"llama-3b", [] { return llama_model({28, 3072, 24, 8, 8192, true}); }},
                  {"llama-8b", [] { return llama_model({32, 4096, 32, 8, 14336, false}); }},
                  {"llama-13b", [] { return llama_model({40, 5120, 40, 40, 13824, false}); }},
                  {"llama-70b", [] { return llama_model({80, 8192, 64, 8, 28672, false}); }}},
      .defaults = llama_defaults,
      .problems = llama_problems,
      .build = build_llama,
      .parameters = llama_parameters,
      .files = llama_files()};
  return &kRow;
}

}  // namespace plimsoll::families
