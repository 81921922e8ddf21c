#include "families/file_names.h"

namespace plimsoll::families {

QkvRows::QkvRows(const model::Model& model)
    : groups(model.kv_heads), query_rows(model.heads / model.kv_heads * model.head_dim), head_rows(model.head_dim) {}

std::vector<RowRun> QkvRows::fused_runs() const {
  std::vector<RowRun> all = query_runs();
  for (const auto& more : {key_runs(queries()), value_runs(queries() + keys())}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<RowRun> QkvRows::runs(std::int64_t first, std::int64_t within_group, std::int64_t count) const {
  std::vector<RowRun> runs;
  for (std::int64_t group = 0; group < groups; ++group)
    runs.push_back({.ours = group * group_rows() + within_group, .theirs = first + group * count, .count = count});
  return runs;
}

std::vector<Source> separate_qkv(const QkvRows& qkv, const std::string& query, const std::string& key, const std::string& value) {
  return {{query, qkv.queries(), qkv.query_runs()}, {key, qkv.keys(), qkv.key_runs()}, {value, qkv.keys(), qkv.value_runs()}};
}

void Collector::matrix(const std::string& ours, std::int64_t rows, std::int64_t columns, const std::string& theirs) {
  add({ours, {rows, columns}, {{theirs, {rows, columns}, all_rows(rows)}}});
}

void Collector::vector(const std::string& ours, std::int64_t rows, const std::string& theirs) {
  add({ours, {rows}, {{theirs, {rows}, all_rows(rows)}}});
}

void Collector::linear(const std::string& ours, std::int64_t columns, const std::vector<Source>& sources, bool bias, bool transposed) {
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

void Collector::layer_norm(const std::string& ours, const std::string& theirs) {
  vector(ours + ".weight", model_.width, theirs + ".weight");
  vector(ours + ".bias", model_.width, theirs + ".bias");
}

void Collector::head(const std::string& theirs, const std::string& token_table) {
  if (model_.tied) {
    names_.tied.emplace_back(theirs, token_table);
  } else {
    matrix("head.weight", model_.vocab, model_.width, theirs);
  }
}

void Collector::make_optional(std::size_t first) {
  for (std::size_t i = first; i < names_.tensors.size(); ++i) names_.tensors[i].optional = true;
}

}  // namespace plimsoll::families
