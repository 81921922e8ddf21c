// BERT with its masked-language head: three embedding tables, post-norm blocks, attention in both directions, a dense
// layer and a bias before the tied decoder.
#include "families/bert/bert.h"
#include "families/transformer.h"

namespace plimsoll::families {

using graph::Builder;
using graph::LinearOptions;
using graph::normal;
using graph::NormOptions;
using graph::ValueId;
using graph::zeros;

namespace {

ValueId bert_block(const model::Model& model, Builder& build, std::int64_t layer, ValueId x) {
  const std::string name = block_name(layer);
  const NormOptions norm{.kind = ops::NormKind::layer, .eps = model.norm_eps, .bias = true};
  const auto dealt = [&](const ops::Placement& deal, const base::Shape& matrices = {}) {
    return LinearOptions{.bias = true, .init_std = model.init_std, .deal = deal, .matrices = matrices};
  };
  const ops::Heads heads = heads_of(model);

  const ValueId packed =
      build.linear(x, name + ".attention.qkv", heads.packed_width(), dealt(dealt_packed(heads), matrices_in_packed(heads)));
  const ValueId mixed = build.attention(packed, {.heads = heads, .causal = false}, model.attention_dropout, name + ".attention");
  const ValueId out = build.linear(mixed, name + ".attention.out", model.width, dealt(dealt_queries(heads)));
  x = build.norm(build.residual(x, out, model.dropout, name + ".attention.residual"), name + ".attention.norm", norm);

  const ValueId up = build.linear(x, name + ".ffn.up", model.ffn, dealt(ops::split(0, model.ffn)));
  const ValueId active = build.activation(up, activation_of(model), name + ".ffn.activation");
  const ValueId down = build.linear(active, name + ".ffn.down", model.width, dealt(ops::split(1, model.ffn)));
  return build.norm(build.residual(x, down, model.dropout, name + ".ffn.residual"), name + ".ffn.norm", norm);
}

}  // namespace

void build_bert(const model::Model& model, Builder& build) {
  const NormOptions norm{.kind = ops::NormKind::layer, .eps = model.norm_eps, .bias = true};
  build.block("embed", graph::BlockKind::opening);
  const ValueId tokens = build.parameter("embed.tokens", {model.vocab, model.width}, normal(model.init_std), ops::split(0, model.vocab));
  const ValueId positions = build.parameter("embed.positions", {model.context, model.width}, normal(model.init_std));
  const ValueId types = build.parameter("embed.types", {model.token_types, model.width}, normal(model.init_std));
  ValueId x =
      build.embed({{build.tokens(), tokens}, {build.positions(), positions}, {build.token_types(), types}}, "embed", model.pad_token);
  x = build.norm(x, "embed.norm", norm);
  x = build.dropout(x, model.embedding_dropout, "embed.dropout");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    build.block(block_name(layer));
    x = bert_block(model, build, layer, x);
  }
  build.block("head", graph::BlockKind::closing);
  x = build.linear(x, "head.dense", model.width, {.bias = true, .init_std = model.init_std});
  x = build.activation(x, activation_of(model), "head.activation");
  x = build.norm(x, "head.norm", norm);
  const ValueId weight =
      model.tied ? tokens : build.parameter("head.weight", {model.vocab, model.width}, normal(model.init_std), ops::split(0, model.vocab));
  const ValueId bias = build.parameter("head.bias", {model.vocab}, zeros(), ops::split(0, model.vocab));
  build.head(x, weight, bias);
}

}  // namespace plimsoll::families
