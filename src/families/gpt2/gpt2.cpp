#include "families/gpt2/gpt2.h"

#include "families/families.h"
#include "families/transformer.h"

namespace plimsoll::families {

namespace {

using model::Model;

void gpt2_problems(const Model& model, std::vector<std::string>& found) {
  if (transformer_problems(model, found)) equal_heads_problems(model, found);
}

std::int64_t gpt2_parameters(const Model& model) {
  const std::int64_t head = model.tied ? 0 : model.vocab * model.width;
  const std::int64_t tables = (model.vocab + model.context) * model.width;
  return tables + model.layers * biased_block_parameters(model) + 2 * model.width + head;
}

}  // namespace

model::Family gpt2() {
  static const Family kRow{.name = "gpt2",
                           .settings = transformer_settings({"dropout", "attention_dropout", "embedding_dropout"}),
                           .derived = four_times_width_and_dropouts(),
                           .presets = {{"gpt2", [] { return sized(gpt2(), 12, 768, 12); }},
                                       {"gpt2-medium", [] { return sized(gpt2(), 24, 1024, 16); }},
                                       {"gpt2-large", [] { return sized(gpt2(), 36, 1280, 20); }},
                                       {"gpt2-xl", [] { return sized(gpt2(), 48, 1600, 25); }},
                                       {"gpt2-tiny", [] { return sized(gpt2(), 4, 128, 4); }}},
                           .problems = gpt2_problems,
                           .build = build_gpt2,
                           .parameters = gpt2_parameters,
                           .files = gpt2_files()};
  return &kRow;
}

}  // namespace plimsoll::families
