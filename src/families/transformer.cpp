#include "families/transformer.h"

#include <fmt/format.h>

#include "families/families.h"

namespace plimsoll::families {

using model::Model;

std::vector<std::string_view> transformer_settings(std::initializer_list<std::string_view> more) {
  std::vector<std::string_view> settings{"layers",  "width", "heads", "kv_heads", "head_dim",   "ffn",
                                         "context", "vocab", "tied",  "norm_eps", "activation", "init_std"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

std::vector<Derived> four_times_width_and_dropouts() {
  return {{.key = "kv_heads", .from = {"heads"}, .how = "heads", .value = [](const Model& model) { return base::Json(model.heads); }},
          {.key = "ffn", .from = {"width"}, .how = "4 x width", .value = [](const Model& model) { return base::Json(4 * model.width); }},
          {.key = "attention_dropout",
           .from = {"dropout"},
           .how = "dropout",
           .value = [](const Model& model) { return base::Json(model.dropout); }},
          {.key = "embedding_dropout", .from = {"dropout"}, .how = "dropout", .value = [](const Model& model) {
             return base::Json(model.dropout);
           }}};
}

Model sized(model::Family family, std::int64_t layers, std::int64_t width, std::int64_t heads) {
  Model model = defaults(family);
  model.layers = layers;
  model.width = width;
  model.heads = model.kv_heads = heads;
  model.head_dim = width / heads;
  model.ffn = 4 * width;
  return model;
}

bool transformer_problems(const Model& model, std::vector<std::string>& found) {
  const auto expect = [&](bool holds, std::string reason) {
    if (!holds) found.push_back(std::move(reason));
  };
  for (const auto& [name, value] : {std::pair<std::string_view, std::int64_t>{"layers", model.layers},
                                    {"width", model.width},
                                    {"heads", model.heads},
                                    {"kv_heads", model.kv_heads},
                                    {"head_dim", model.head_dim},
                                    {"ffn", model.ffn},
                                    {"context", model.context},
                                    {"vocab", model.vocab}}) {
    expect(value >= 1, fmt::format("\"{}\" is {}; expected at least 1", name, value));
  }
  if (!found.empty()) return false;
  expect(model.heads % model.kv_heads == 0,
         fmt::format("\"heads\" is {} and \"kv_heads\" {}; expected heads to be a multiple of kv_heads", model.heads, model.kv_heads));
  expect(model.pad_token >= -1 && model.pad_token < model.vocab,
         fmt::format("\"pad_token\" is {}; expected a token of {}, or -1 for none", model.pad_token, model.vocab));
  for (const auto& [name, rate] : {std::pair<std::string_view, double>{"dropout", model.dropout},
                                   {"attention_dropout", model.attention_dropout},
                                   {"embedding_dropout", model.embedding_dropout}}) {
    expect(rate >= 0.0 && rate < 1.0, fmt::format("\"{}\" is {}; expected 0 <= rate < 1", name, rate));
  }
  expect(model.norm_eps > 0.0, fmt::format("\"norm_eps\" is {}; expected more than 0", model.norm_eps));
  return true;
}

void equal_heads_problems(const Model& model, std::vector<std::string>& found) {
  if (model.kv_heads == model.heads) return;
  found.push_back(fmt::format("\"kv_heads\" is {} and \"heads\" {}; the {} family has no grouped-query attention, expected them equal",
                              model.kv_heads, model.heads, model.family->name));
}

ops::Heads heads_of(const model::Model& model) { return {.query = model.heads, .kv = model.kv_heads, .dim = model.head_dim}; }

base::Shape matrices_in_packed(const ops::Heads& heads) { return {heads.per_group() * heads.dim, heads.dim, heads.dim}; }

ops::Placement dealt_packed(const ops::Heads& heads) {
  return {.spread = ops::Spread::split, .dim = 0, .units = heads.kv, .own = heads.per_group(), .shared = 2};
}

ops::Placement dealt_queries(const ops::Heads& heads) { return ops::on_dim(ops::without_shared(dealt_packed(heads)), 1); }

ops::ActivationKind activation_of(const model::Model& model) {
  switch (model.activation) {
    case model::ActivationKind::gelu_tanh: return ops::ActivationKind::gelu_tanh;
    case model::ActivationKind::gelu_erf: return ops::ActivationKind::gelu_erf;
    case model::ActivationKind::relu: return ops::ActivationKind::relu;
    case model::ActivationKind::silu: return ops::ActivationKind::silu;
  }
  return ops::ActivationKind::none;
}

std::string block_name(std::int64_t layer) { return fmt::format("blocks.{}", layer); }

bool heads_make_width(std::string_view, const Model& model) { return model.head_dim * model.heads == model.width; }

std::string why_heads_do_not_make_width(const Model& model) {
  return fmt::format("{} heads of size {} do not make the width {}, and no Hugging Face model of this family can hold that", model.heads,
                     model.head_dim, model.width);
}

std::int64_t biased_block_parameters(const Model& model) {
  const std::int64_t width = model.width;
  const std::int64_t query = model.heads * model.head_dim;
  const std::int64_t packed = query + 2 * model.kv_heads * model.head_dim;
  return packed * width + packed + width * query + width + 2 * model.ffn * width + model.ffn + width + 4 * width;
}

}  // namespace plimsoll::families
