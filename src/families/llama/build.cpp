// Llama and its relatives (Qwen, Mistral): RMS norms, rotary positions, grouped-query attention, gated feed-forward.
#include "families/llama/llama.h"
#include "families/transformer.h"

namespace plimsoll::families {

using graph::Builder;
using graph::Init;
using graph::LinearOptions;
using graph::normal;
using graph::NormOptions;
using graph::ValueId;

namespace {

ValueId llama_block(const model::Model& model, Builder& build, std::int64_t layer, ValueId x, ValueId table) {
  const std::string name = block_name(layer);
  const NormOptions norm{.kind = ops::NormKind::rms, .eps = model.norm_eps, .bias = false};
  const auto dealt = [&](bool bias, const ops::Placement& deal, const base::Shape& matrices = {}) {
    return LinearOptions{.bias = bias, .init_std = model.init_std, .deal = deal, .matrices = matrices};
  };
  const ops::Heads heads = heads_of(model);

  const ValueId y = build.norm(x, name + ".attention.norm", norm);
  ValueId packed =
      build.linear(y, name + ".attention.qkv", heads.packed_width(), dealt(model.qkv_bias, dealt_packed(heads), matrices_in_packed(heads)));
  if (model.qk_norm) packed = build.qk_norm(packed, name + ".attention", heads, model.norm_eps);
  packed = build.rope(packed, table, heads, name + ".attention.rope");
  const ValueId mixed = build.attention(packed, {.heads = heads, .causal = true, .window = model.sliding_window}, model.attention_dropout,
                                        name + ".attention");
  x = build.residual(x, build.linear(mixed, name + ".attention.out", model.width, dealt(model.out_bias, dealt_queries(heads))),
                     model.dropout, name + ".attention.residual");

  const ValueId z = build.norm(x, name + ".ffn.norm", norm);
  const ValueId up = build.linear(z, name + ".ffn.up", 2 * model.ffn, dealt(false, ops::split(0, model.ffn), {1, 1}));
  const ValueId gated = build.gate(up, activation_of(model), name + ".ffn.gate");
  return build.residual(x, build.linear(gated, name + ".ffn.down", model.width, dealt(false, ops::split(1, model.ffn))), model.dropout,
                        name + ".ffn.residual");
}

}  // namespace

void build_llama(const model::Model& model, Builder& build) {
  build.block("embed", graph::BlockKind::opening);
  const ValueId tokens = build.parameter("embed.tokens", {model.vocab, model.width}, normal(model.init_std), ops::split(0, model.vocab));
  const ValueId table = build.constant("rope", {base::DType::f32, {model.context, model.head_dim}},
                                       {.kind = Init::Kind::rope, .frequencies = rope_frequencies(model)});
  ValueId x = build.embed({{build.tokens(), tokens}}, "embed", model.pad_token);
  x = build.dropout(x, model.embedding_dropout, "embed.dropout");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    build.block(block_name(layer));
    x = llama_block(model, build, layer, x, table);
  }
  build.block("head", graph::BlockKind::closing);
  x = build.norm(x, "head.norm", {.kind = ops::NormKind::rms, .eps = model.norm_eps, .bias = false});
  const ValueId weight =
      model.tied ? tokens : build.parameter("head.weight", {model.vocab, model.width}, normal(model.init_std), ops::split(0, model.vocab));
  build.head(x, weight);
}

}  // namespace plimsoll::families
