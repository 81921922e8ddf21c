#include "families/bert/bert.h"

#include <fmt/format.h>

#include "families/families.h"
#include "families/transformer.h"

namespace plimsoll::families {

namespace {

using model::Model;

void bert_defaults(Model& model) {
  model.norm_eps = 1e-12;
  model.activation = model::ActivationKind::gelu_erf;
  model.context = 512;
  model.vocab = 30522;
}

void bert_problems(const Model& model, std::vector<std::string>& found) {
  if (!transformer_problems(model, found)) return;
  equal_heads_problems(model, found);
  if (model.token_types < 1) found.push_back(fmt::format("\"token_types\" is {}; expected at least 1", model.token_types));
}

// The head: the dense layer and its norm, and a bias for each token.
std::int64_t bert_parameters(const Model& model) {
  const std::int64_t width = model.width;
  const std::int64_t tables = (model.vocab + model.context + model.token_types) * width;
  const std::int64_t head = width * width + 3 * width + model.vocab + (model.tied ? 0 : model.vocab * width);
  return tables + 2 * width + model.layers * biased_block_parameters(model) + head;
}

}  // namespace

model::Family bert() {
  static const Family kRow{
      .name = "bert",
      .samples = Samples::masked_tokens,
      .settings = transformer_settings({"dropout", "attention_dropout", "embedding_dropout", "pad_token", "token_types"}),
      .derived = four_times_width_and_dropouts(),
      .presets = {{"bert-base", [] { return sized(bert(), 12, 768, 12); }}, {"bert-large", [] { return sized(bert(), 24, 1024, 16); }}},
      .defaults = bert_defaults,
      .problems = bert_problems,
      .build = build_bert,
      .parameters = bert_parameters,
      .files = bert_files()};
  return &kRow;
}

}  // namespace plimsoll::families
