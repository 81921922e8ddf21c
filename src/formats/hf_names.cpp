#include "formats/hf_names.h"

#include <fmt/format.h>

namespace plimsoll::formats {

namespace {

using model::Family;
using model::Model;

std::vector<RowRun> all_rows(std::int64_t count) { return {{.count = count}}; }

// The packed rows of attention.qkv.
struct QkvRows {
  std::int64_t groups;      // key-value heads
  std::int64_t query_rows;  // of one group
  std::int64_t head_rows;

  explicit QkvRows(const Model& model)
      : groups(model.kv_heads), query_rows(model.heads / model.kv_heads * model.head_dim), head_rows(model.head_dim) {}

  std::int64_t group_rows() const { return query_rows + 2 * head_rows; }
  std::int64_t packed() const { return groups * group_rows(); }
  std::int64_t queries() const { return groups * query_rows; }
  std::int64_t keys() const { return groups * head_rows; }

  // `first`: the row of their tensor where the queries, keys or values begin.
  std::vector<RowRun> query_runs(std::int64_t first = 0) const { return runs(first, 0, query_rows); }
  std::vector<RowRun> key_runs(std::int64_t first = 0) const { return runs(first, query_rows, head_rows); }
  std::vector<RowRun> value_runs(std::int64_t first = 0) const { return runs(first, query_rows + head_rows, head_rows); }
  // Queries, keys and values one behind the other in a single tensor.
  std::vector<RowRun> fused_runs() const {
    std::vector<RowRun> all = query_runs();
    for (const auto& more : {key_runs(queries()), value_runs(queries() + keys())}) all.insert(all.end(), more.begin(), more.end());
    return all;
  }

 private:
  std::vector<RowRun> runs(std::int64_t first, std::int64_t within_group, std::int64_t count) const {
    std::vector<RowRun> runs;
    for (std::int64_t group = 0; group < groups; ++group) {
      runs.push_back({.ours = group * group_rows() + within_group, .theirs = first + group * count, .count = count});
    }
    return runs;
  }
};

// One Hugging Face linear layer, or vector, and its rows in ours.
struct Source {
  std::string name;
  std::int64_t rows;
  std::vector<RowRun> runs;
};

// Collects the tensors of one model; `prefix_` stands before every name of the base model.
class Collector {
 public:
  Collector(const Model& model, bool bare) : model_(model), prefix_(bare ? "" : hf_prefix(model.family)) {}

  std::string in_base(std::string_view name) const { return prefix_ + std::string(name); }

  void add(HfTensor tensor) { names_.tensors.push_back(std::move(tensor)); }

  void matrix(const std::string& ours, std::int64_t rows, std::int64_t columns, const std::string& theirs) {
    add({ours, {rows, columns}, {{theirs, {rows, columns}, all_rows(rows)}}});
  }

  void vector(const std::string& ours, std::int64_t rows, const std::string& theirs) {
    add({ours, {rows}, {{theirs, {rows}, all_rows(rows)}}});
  }

  // Our (rows, columns) weight, and its bias, out of one or more of their layers.
  void linear(const std::string& ours, std::int64_t columns, const std::vector<Source>& sources, bool bias, bool transposed = false) {
    std::int64_t rows = 0;
    for (const Source& source : sources) rows += source.rows;
    HfTensor weight{ours + ".weight", {rows, columns}, {}};
    HfTensor offset{ours + ".bias", {rows}, {}};
    for (const Source& source : sources) {
      const std::vector<std::int64_t> shape = transposed ? std::vector{columns, source.rows} : std::vector{source.rows, columns};
      weight.parts.push_back({source.name + ".weight", shape, source.runs, transposed});
      offset.parts.push_back({source.name + ".bias", {source.rows}, source.runs});
    }
    add(std::move(weight));
    if (bias) add(std::move(offset));
  }

  void layer_norm(const std::string& ours, const std::string& theirs) {
    vector(ours + ".weight", model_.width, theirs + ".weight");
    vector(ours + ".bias", model_.width, theirs + ".bias");
  }

  // BERT's norms were once saved with TensorFlow's names.
  void bert_norm(const std::string& ours, const std::string& theirs) {
    layer_norm(ours, theirs);
    names_.tensors[names_.tensors.size() - 2].parts[0].aliases = {theirs + ".gamma"};
    names_.tensors[names_.tensors.size() - 1].parts[0].aliases = {theirs + ".beta"};
  }

  // The output layer over the vocabulary: a tensor of its own, or the token table again.
  void head(const std::string& theirs, const std::string& token_table) {
    if (model_.tied) {
      names_.tied.emplace_back(theirs, token_table);
    } else {
      matrix("head.weight", model_.vocab, model_.width, theirs);
    }
  }

  // What was added since `first` may be missing from a model without its head.
  void make_optional(std::size_t first) {
    for (std::size_t i = first; i < names_.tensors.size(); ++i) names_.tensors[i].optional = true;
  }

  HfNames& names() { return names_; }

 private:
  const Model& model_;
  std::string prefix_;
  HfNames names_;
};

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

std::vector<Source> separate_qkv(const QkvRows& qkv, const std::string& query, const std::string& key, const std::string& value) {
  return {{query, qkv.queries(), qkv.query_runs()}, {key, qkv.keys(), qkv.key_runs()}, {value, qkv.keys(), qkv.value_runs()}};
}

void add_llama(const Model& model, Collector& out) {
  const QkvRows qkv(model);
  out.matrix("embed.tokens", model.vocab, model.width, out.in_base("embed_tokens.weight"));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string ours = fmt::format("blocks.{}", layer);
    const std::string theirs = out.in_base(fmt::format("layers.{}", layer));
    const std::string attention = theirs + ".self_attn";
    out.vector(ours + ".attention.norm.weight", model.width, theirs + ".input_layernorm.weight");
    out.linear(ours + ".attention.qkv", model.width, separate_qkv(qkv, attention + ".q_proj", attention + ".k_proj", attention + ".v_proj"),
               model.qkv_bias);
    if (model.qk_norm) {
      out.vector(ours + ".attention.query_norm.weight", model.head_dim, attention + ".q_norm.weight");
      out.vector(ours + ".attention.key_norm.weight", model.head_dim, attention + ".k_norm.weight");
    }
    out.linear(ours + ".attention.out", qkv.queries(), {{attention + ".o_proj", model.width, all_rows(model.width)}}, model.out_bias);
    out.vector(ours + ".ffn.norm.weight", model.width, theirs + ".post_attention_layernorm.weight");
    const RowRun gate{.ours = 0, .theirs = 0, .count = model.ffn, .step = 2};
    const RowRun up{.ours = 1, .theirs = 0, .count = model.ffn, .step = 2};
    out.linear(ours + ".ffn.up", model.width, {{theirs + ".mlp.gate_proj", model.ffn, {gate}}, {theirs + ".mlp.up_proj", model.ffn, {up}}},
               false);
    out.linear(ours + ".ffn.down", model.ffn, {{theirs + ".mlp.down_proj", model.width, all_rows(model.width)}}, false);
  }
  out.vector("head.norm.weight", model.width, out.in_base("norm.weight"));
  out.head("lm_head.weight", out.in_base("embed_tokens.weight"));
}

void add_bert_head(const Model& model, Collector& out) {
  const std::size_t first = out.names().tensors.size();
  const std::string theirs = "cls.predictions";
  out.linear("head.dense", model.width, {{theirs + ".transform.dense", model.width, all_rows(model.width)}}, true);
  out.bert_norm("head.norm", theirs + ".transform.LayerNorm");
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
  out.bert_norm("embed.norm", embeddings + ".LayerNorm");
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string ours = fmt::format("blocks.{}", layer);
    const std::string theirs = out.in_base(fmt::format("encoder.layer.{}", layer));
    const std::string self = theirs + ".attention.self";
    out.linear(ours + ".attention.qkv", model.width, separate_qkv(qkv, self + ".query", self + ".key", self + ".value"), true);
    out.linear(ours + ".attention.out", qkv.queries(), {{theirs + ".attention.output.dense", model.width, all_rows(model.width)}}, true);
    out.bert_norm(ours + ".attention.norm", theirs + ".attention.output.LayerNorm");
    out.linear(ours + ".ffn.up", model.width, {{theirs + ".intermediate.dense", model.ffn, all_rows(model.ffn)}}, true);
    out.linear(ours + ".ffn.down", model.ffn, {{theirs + ".output.dense", model.width, all_rows(model.width)}}, true);
    out.bert_norm(ours + ".ffn.norm", theirs + ".output.LayerNorm");
  }
  add_bert_head(model, out);
}

}  // namespace

std::string_view hf_prefix(Family family) {
  switch (family) {
    case Family::gpt2: return "transformer.";
    case Family::llama: return "model.";
    case Family::bert: return "bert.";
  }
  return "";
}

HfNames hf_names(const Model& model, bool bare) {
  Collector collector(model, bare);
  switch (model.family) {
    case Family::gpt2: add_gpt2(model, collector); break;
    case Family::llama: add_llama(model, collector); break;
    case Family::bert: add_bert(model, collector); break;
  }
  return std::move(collector.names());
}

bool is_known_buffer(Family family, std::string_view name) {
  switch (family) {
    case Family::gpt2: return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
    case Family::llama: return name.ends_with("rotary_emb.inv_freq");
    case Family::bert:
      return name == "embeddings.position_ids" || name == "embeddings.token_type_ids" || name.starts_with("pooler.") ||
             name.starts_with("cls.seq_relationship.");
  }
  return false;
}

}  // namespace plimsoll::formats
