// Which Hugging Face tensors make up each of ours: names and rows as data, and what families list theirs with.
//
// Our tensors are what the graph declares (`blocks.0.attention.qkv.weight`), linear weights as (out, in). Two of them
// are packed, by a rule that the kernels rely on:
//
//   attention.qkv   for each key-value head in turn: its heads / kv_heads query heads, its key, its value, head_dim rows
//                   each. So tensor parallelism may cut between any two groups.
//   gated ffn.up    gate row 0, up row 0, gate row 1, up row 1, ...: what is multiplied together lies side by side.
//
// A Hugging Face tensor may be stored (in, out), as GPT-2's are; then its columns count as its rows here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/model.h"

namespace plimsoll::families {

// Row `ours + i * step` of our tensor is row `theirs + i` of the Hugging Face tensor, for 0 <= i < count.
struct RowRun {
  std::int64_t ours = 0;
  std::int64_t theirs = 0;
  std::int64_t count = 0;
  std::int64_t step = 1;
};

// One Hugging Face tensor and where its rows go. The runs of a part cover all of it.
struct HfPart {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<RowRun> rows;
  bool transposed = false;
  std::vector<std::string> aliases = {};  // older names, accepted when `name` is not there
  std::vector<std::string> copies = {};   // names under which the same tensor is written again; see HfPassenger
  std::string instead = {};               // the name of what transformers computes with where the files hold it beside `name`
};

// A tensor that files hold beside the one that transformers computes with, with other values: nobody computes with it, and it comes out as
// it went in. So does BERT's `cls.predictions.bias` where `cls.predictions.decoder.bias` differs.
struct HfPassenger {
  std::string name;
  std::vector<float> values;
};

struct HfTensor {
  std::string name;  // ours
  std::vector<std::int64_t> shape;
  std::vector<HfPart> parts;
  bool optional = false;  // a model without its head may lack it
};

struct HfNames {
  std::vector<HfTensor> tensors;
  // (name, original): files may hold the first beside the second; it must then be equal to it.
  std::vector<std::pair<std::string, std::string>> tied;
};

// The packed rows of attention.qkv.
struct QkvRows {
  std::int64_t groups;      // key-value heads
  std::int64_t query_rows;  // of one group
  std::int64_t head_rows;

  explicit QkvRows(const model::Model& model);

  std::int64_t group_rows() const { return query_rows + 2 * head_rows; }
  std::int64_t packed() const { return groups * group_rows(); }
  std::int64_t queries() const { return groups * query_rows; }
  std::int64_t keys() const { return groups * head_rows; }

  // `first`: the row of their tensor where the queries, keys or values begin.
  std::vector<RowRun> query_runs(std::int64_t first = 0) const { return runs(first, 0, query_rows); }
  std::vector<RowRun> key_runs(std::int64_t first = 0) const { return runs(first, query_rows, head_rows); }
  std::vector<RowRun> value_runs(std::int64_t first = 0) const { return runs(first, query_rows + head_rows, head_rows); }
  // Queries, keys and values one behind the other in a single tensor.
  std::vector<RowRun> fused_runs() const;

 private:
  std::vector<RowRun> runs(std::int64_t first, std::int64_t within_group, std::int64_t count) const;
};

inline std::vector<RowRun> all_rows(std::int64_t count) { return {{.count = count}}; }

// One Hugging Face linear layer, or vector, and its rows in ours.
struct Source {
  std::string name;
  std::int64_t rows;
  std::vector<RowRun> runs;
};

std::vector<Source> separate_qkv(const QkvRows& qkv, const std::string& query, const std::string& key, const std::string& value);

// Collects the tensors of one model; `prefix` stands before every name of the base model.
class Collector {
 public:
  Collector(const model::Model& model, std::string_view prefix) : model_(model), prefix_(prefix) {}

  std::string in_base(std::string_view name) const { return prefix_ + std::string(name); }

  void add(HfTensor tensor) { names_.tensors.push_back(std::move(tensor)); }
  void matrix(const std::string& ours, std::int64_t rows, std::int64_t columns, const std::string& theirs);
  void vector(const std::string& ours, std::int64_t rows, const std::string& theirs);
  // Our (rows, columns) weight, and its bias, out of one or more of their layers.
  void linear(const std::string& ours, std::int64_t columns, const std::vector<Source>& sources, bool bias, bool transposed = false);
  void layer_norm(const std::string& ours, const std::string& theirs);
  // The output layer over the vocabulary: a tensor of its own, or the token table again.
  void head(const std::string& theirs, const std::string& token_table);
  // What was added since `first` may be missing from a model without its head.
  void make_optional(std::size_t first);

  HfNames& names() { return names_; }

 private:
  const model::Model& model_;
  std::string prefix_;
  HfNames names_;
};

}  // namespace plimsoll::families
