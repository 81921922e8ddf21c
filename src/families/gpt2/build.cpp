// GPT-2: learned positions, pre-norm blocks, biases everywhere, the token table as head unless untied.
#include <cmath>

#include "families/gpt2/gpt2.h"
#include "families/transformer.h"

namespace plimsoll::families {

using graph::Builder;
using graph::normal;
using graph::NormOptions;
using graph::ValueId;

namespace {

ValueId gpt2_block(const model::Model& model, Builder& build, std::int64_t layer, ValueId x) {
  const std::string name = block_name(layer);
  const NormOptions norm{.kind = ops::NormKind::layer, .eps = model.norm_eps, .bias = true};
  // Branches that add to the residual stream start smaller, by their number.
  const double branch_std = model.init_std / std::sqrt(2.0 * static_cast<double>(model.layers));
  const ops::Heads heads = heads_of(model);

  const ValueId y = build.norm(x, name + ".attention.norm", norm);
  const ValueId packed =
      build.linear(y, name + ".attention.qkv", heads.packed_width(),
                   {.bias = true, .init_std = model.init_std, .deal = dealt_packed(heads), .matrices = matrices_in_packed(heads)});
  const ValueId mixed = build.attention(packed, {.heads = heads, .causal = true}, model.attention_dropout, name + ".attention");
  const ValueId out =
      build.linear(mixed, name + ".attention.out", model.width, {.bias = true, .init_std = branch_std, .deal = dealt_queries(heads)});
  x = build.residual(x, out, model.dropout, name + ".attention.residual");

  const ValueId z = build.norm(x, name + ".ffn.norm", norm);
  const ValueId up =
      build.linear(z, name + ".ffn.up", model.ffn, {.bias = true, .init_std = model.init_std, .deal = ops::split(0, model.ffn)});
  const ValueId active = build.activation(up, activation_of(model), name + ".ffn.activation");
  const ValueId down =
      build.linear(active, name + ".ffn.down", model.width, {.bias = true, .init_std = branch_std, .deal = ops::split(1, model.ffn)});
  return build.residual(x, down, model.dropout, name + ".ffn.residual");
}

}  // namespace

void build_gpt2(const model::Model& model, Builder& build) {
  build.block("embed", graph::BlockKind::opening);
  const ValueId tokens = build.parameter("embed.tokens", {model.vocab, model.width}, normal(model.init_std), ops::split(0, model.vocab));
  const ValueId positions = build.parameter("embed.positions", {model.context, model.width}, normal(model.init_std));
  ValueId x = build.embed({{build.tokens(), tokens}, {build.positions(), positions}}, "embed");
  x = build.dropout(x, model.embedding_dropout, "embed.dropout");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    build.block(block_name(layer));
    x = gpt2_block(model, build, layer, x);
  }
  build.block("head", graph::BlockKind::closing);
  x = build.norm(x, "head.norm", {.kind = ops::NormKind::layer, .eps = model.norm_eps, .bias = true});
  const ValueId weight =
      model.tied ? tokens : build.parameter("head.weight", {model.vocab, model.width}, normal(model.init_std), ops::split(0, model.vocab));
  build.head(x, weight);
}

}  // namespace plimsoll::families
