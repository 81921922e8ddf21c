// GPT-2's names and keys in Hugging Face folders.
#include "families/gpt2/gpt2.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "families/families.h"
#include "families/transformer.h"

namespace plimsoll::families {

namespace {

using base::Json;
using model::Model;

Model read_gpt2(std::string_view, const Json& config) {
  const ConfigReader read(config);
  read.require("scale_attn_weights", true, "GPT-2's attention");
  read.require("scale_attn_by_inverse_layer_idx", false, "GPT-2's attention");
  read.require("add_cross_attention", false, "GPT-2");
  Model model = defaults(gpt2());
  model.layers = read.count("n_layer");
  model.width = read.count("n_embd");
  model.heads = model.kv_heads = read.count("n_head");
  model.head_dim = head_dim_in(config, model);
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

void set_gpt2(std::string_view, const Model& model, Json& config) {
  config.set("n_layer", model.layers);
  config.set("n_embd", model.width);
  config.set("n_head", model.heads);
  config.set("n_inner", model.ffn);
  config.set("n_positions", model.context);
  config.set("resid_pdrop", model.dropout);
  config.set("attn_pdrop", model.attention_dropout);
  config.set("embd_pdrop", model.embedding_dropout);
  config.set("layer_norm_epsilon", model.norm_eps);
  config.set("activation_function", file_name_of(model.activation));
}

void add_gpt2(const Model& model, Collector& out) {
  const QkvRows qkv(model);
  out.matrix("embed.tokens", model.vocab, model.width, out.in_base("wte.weight"));
  out.matrix("embed.positions", model.context, model.width, out.in_base("wpe.weight"));
  const auto conv1d = [&](const std::string& ours, const std::string& theirs, std::int64_t rows, std::int64_t columns,
                          std::vector<RowRun> runs) { out.linear(ours, columns, {{theirs, rows, std::move(runs)}}, true, true); };
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string ours = fmt::format("blocks.{}", layer);
    const std::string theirs = out.in_base(fmt::format("h.{}", layer));
    out.layer_norm(ours + ".attention.norm", theirs + ".ln_1");
    conv1d(ours + ".attention.qkv", theirs + ".attn.c_attn", qkv.packed(), model.width, qkv.fused_runs());
    conv1d(ours + ".attention.out", theirs + ".attn.c_proj", model.width, qkv.queries(), all_rows(model.width));
    out.layer_norm(ours + ".ffn.norm", theirs + ".ln_2");
    conv1d(ours + ".ffn.up", theirs + ".mlp.c_fc", model.ffn, model.width, all_rows(model.ffn));
    conv1d(ours + ".ffn.down", theirs + ".mlp.c_proj", model.width, model.ffn, all_rows(model.width));
  }
  out.layer_norm("head.norm", out.in_base("ln_f"));
  out.head("lm_head.weight", out.in_base("wte.weight"));
}

bool is_gpt2_buffer(std::string_view name) {
  return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

// transformers otherwise believes certain tokens to be in every vocabulary.
bool set_gpt2_ends(const Model& model, Json& config) {
  constexpr std::int64_t kVocab = 50257;
  if (model.vocab != kVocab) return false;
  config.set("bos_token_id", kVocab - 1);
  config.set("eos_token_id", kVocab - 1);
  return true;
}

}  // namespace

Files gpt2_files() {
  return {.prefix = "transformer.",
          .base_class = "GPT2Model",
          .kinds = {{"gpt2", "GPT2LMHeadModel"}},
          .read = read_gpt2,
          .write = set_gpt2,
          .describes = heads_make_width,
          .beyond = why_heads_do_not_make_width,
          .names = add_gpt2,
          .known_buffer = is_gpt2_buffer,
          .usual_ends = set_gpt2_ends};
}

}  // namespace plimsoll::families
