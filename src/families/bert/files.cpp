// BERT's names and keys in Hugging Face folders.
#include "families/bert/bert.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "families/families.h"
#include "families/transformer.h"

namespace plimsoll::families {

namespace {

using base::Json;
using model::Model;

Model read_bert(std::string_view, const Json& config) {
  const ConfigReader read(config);
  read.require("is_decoder", false, "BERT");
  read.require("add_cross_attention", false, "BERT");
  if (const std::string positions = read.text("position_embedding_type", "absolute"); positions != "absolute") {
    base::bad_input("{}: \"position_embedding_type\" is \"{}\"; Plimsoll computes BERT with \"absolute\" positions only",
                    read.find("position_embedding_type")->where(), positions);
  }
  Model model = defaults(bert());
  model.layers = read.count("num_hidden_layers");
  model.width = read.count("hidden_size");
  model.heads = model.kv_heads = read.count("num_attention_heads");
  model.head_dim = head_dim_in(config, model);
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

void set_bert(std::string_view, const Model& model, Json& config) {
  set_common_keys(model, config);
  config.set("type_vocab_size", model.token_types);
  config.set("hidden_dropout_prob", model.dropout);
  config.set("attention_probs_dropout_prob", model.attention_dropout);
  config.set("layer_norm_eps", model.norm_eps);
}

// BERT's norms were once saved with TensorFlow's names.
void add_bert_norm(Collector& out, const std::string& ours, const std::string& theirs) {
  out.layer_norm(ours, theirs);
  std::vector<HfTensor>& tensors = out.names().tensors;
  tensors[tensors.size() - 2].parts[0].aliases = {theirs + ".gamma"};
  tensors[tensors.size() - 1].parts[0].aliases = {theirs + ".beta"};
}

void add_bert_head(const Model& model, Collector& out) {
  const std::size_t first = out.names().tensors.size();
  const std::string theirs = "cls.predictions";
  out.linear("head.dense", model.width, {{theirs + ".transform.dense", model.width, all_rows(model.width)}}, true);
  add_bert_norm(out, "head.norm", theirs + ".transform.LayerNorm");
  out.head(theirs + ".decoder.weight", out.in_base("embeddings.word_embeddings.weight"));
  if (model.tied) {
    // Usually one tensor under one name; where there are two that differ, transformers does not tie them.
    const HfPart bias{theirs + ".bias",        {model.vocab}, all_rows(model.vocab), false, {theirs + ".decoder.bias"}, {},
                      theirs + ".decoder.bias"};
    out.add({"head.bias", {model.vocab}, {bias}});
  } else {
    // An untied decoder computes with its own bias; the other one is saved beside it and unused.
    const HfPart bias{theirs + ".decoder.bias", {model.vocab}, all_rows(model.vocab), false, {theirs + ".bias"}, {theirs + ".bias"}, {}};
    out.add({"head.bias", {model.vocab}, {bias}});
  }
  out.make_optional(first);
}

void add_bert(const Model& model, Collector& out) {
  const QkvRows qkv(model);
  const std::string embeddings = out.in_base("embeddings");
  out.matrix("embed.tokens", model.vocab, model.width, embeddings + ".word_embeddings.weight");
  out.matrix("embed.positions", model.context, model.width, embeddings + ".position_embeddings.weight");
  out.matrix("embed.types", model.token_types, model.width, embeddings + ".token_type_embeddings.weight");
  add_bert_norm(out, "embed.norm", embeddings + ".LayerNorm");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string ours = fmt::format("blocks.{}", layer);
    const std::string theirs = out.in_base(fmt::format("encoder.layer.{}", layer));
    const std::string self = theirs + ".attention.self";
    out.linear(ours + ".attention.qkv", model.width, separate_qkv(qkv, self + ".query", self + ".key", self + ".value"), true);
    out.linear(ours + ".attention.out", qkv.queries(), {{theirs + ".attention.output.dense", model.width, all_rows(model.width)}}, true);
    add_bert_norm(out, ours + ".attention.norm", theirs + ".attention.output.LayerNorm");
    out.linear(ours + ".ffn.up", model.width, {{theirs + ".intermediate.dense", model.ffn, all_rows(model.ffn)}}, true);
    out.linear(ours + ".ffn.down", model.ffn, {{theirs + ".output.dense", model.width, all_rows(model.width)}}, true);
    add_bert_norm(out, ours + ".ffn.norm", theirs + ".output.LayerNorm");
  }
  add_bert_head(model, out);
}

// Position ids, the pooler and the next-sentence head.
bool is_bert_buffer(std::string_view name) {
  return name == "embeddings.position_ids" || name == "embeddings.token_type_ids" || name.starts_with("pooler.") ||
         name.starts_with("cls.seq_relationship.");
}

bool leave_bert_ends(const Model&, Json&) { return true; }

}  // namespace

Files bert_files() {
  return {.prefix = "bert.",
          .base_class = "BertModel",
          .kinds = {{"bert", "BertForMaskedLM"}},
          .read = read_bert,
          .write = set_bert,
          .describes = heads_make_width,
          .beyond = why_heads_do_not_make_width,
          .names = add_bert,
          .known_buffer = is_bert_buffer,
          .usual_ends = leave_bert_ends,
          .passengers = true};
}

}  // namespace plimsoll::families
