// How a model writes its forward pass: blocks, parameters and operators by name.
//
//   Builder build(options);
//   build.block("embed", BlockKind::opening);
//   const ValueId table = build.parameter("embed.tokens", {vocab, width}, normal(0.02));
//   ValueId x = build.embed({{build.tokens(), table}}, "embed");
//   build.block("h.0");
//   x = build.residual(x, build.linear(x, "h.0.mix", width, {.bias = true}), 0.0, "h.0.sum");
//   build.head(x, table);
//
// The same calls make the training, the evaluation and the inference graph, with or without a cache of keys and values.
#pragma once

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "model/training.h"

namespace plimsoll::graph {

enum class Purpose { train, evaluate, infer };

struct BuildOptions {
  Purpose purpose = Purpose::train;
  model::Precision precision = model::Precision::f32;
  model::MicroBatch micro_batch;
  bool segmented = false;
  std::int64_t cache_slots = 0;  // > 0: attention goes through a cache of so many positions; inference only
  bool logits = true;            // false: an inference graph ends before the head, all that it gives is the cache
};

inline Init normal(double std) { return {.kind = Init::Kind::normal, .std = std}; }
inline Init zeros() { return {.kind = Init::Kind::zeros}; }
inline Init ones() { return {.kind = Init::Kind::ones}; }

struct LinearOptions {
  bool bias = false;
  double init_std = 0.02;
  // How tensor ranks may share out the weight: by rows (dim 0) each makes some of the outputs, by columns (dim 1) a summand of
  // all of them.
  ops::Placement deal{};
  // Where rows of several matrices alternate: how many of each there are in a unit. Rules for matrices update them one by one.
  base::Shape matrices{};
};

struct NormOptions {
  ops::NormKind kind = ops::NormKind::layer;
  double eps = 1e-5;
  bool bias = true;
};

class Builder {
 public:
  explicit Builder(const BuildOptions& options);

  const BuildOptions& options() const { return options_; }

  // From here on inputs have room for the rows of a micro-batch (samples x sequence), of which only the first so many hold anything, as
  // the input "rows" says; `expected` is the share of them that prices count with. Before the first input, within a block.
  void bound_rows(double expected = 1.0);

  // Starts the next block; what is built until the following call belongs to it. Blocks differ as they like, and any may read what any
  // before it made.
  void block(std::string name, BlockKind kind = BlockKind::layer);

  // ---- roots. Inputs are made on first use, so a graph has only those it reads. Whoever fills batches is asked for them by name and type.
  ValueId tokens() { return ids("tokens"); }
  ValueId targets() { return ids("targets"); }
  ValueId positions() { return ids("positions"); }
  ValueId segments() { return ids("segments"); }
  ValueId token_types() { return ids("token_types"); }
  // A micro-batch of anything else; the first dim is the samples.
  ValueId input(const std::string& name, const TensorType& type);
  // (samples, sequence, width) numbers, in the type that the model computes in.
  ValueId numbers(const std::string& name, std::int64_t width);
  ValueId parameter(const std::string& name, const base::Shape& shape, const Init& init, const ops::Placement& deal = {});
  // Of the parameter that was declared last: the axes over which its gradient is summed. Without the data axis each data rank has its own,
  // and ranks beyond those that saved theirs go on as `merge` says.
  void sum_over(std::vector<ops::Axis> axes, ops::State::Merge merge = ops::State::Merge::first);
  ValueId constant(const std::string& name, const TensorType& type, const Init& init);
  // What outlives a step beside parameters and says itself how it is kept; `deal` where tensor ranks may share it out.
  ValueId state(const std::string& name, const TensorType& type, const ops::State& state, const ops::Placement& deal = {});

  // ---- operators; parameters are named after `name`
  // `padding`: an id of the first table that lookups do not train; -1: none.
  ValueId embed(const std::vector<std::pair<ValueId, ValueId>>& ids_and_tables, std::string_view name, std::int64_t padding = -1);
  ValueId linear(ValueId x, const std::string& name, std::int64_t width, const LinearOptions& options);
  ValueId norm(ValueId x, const std::string& name, const NormOptions& options);
  ValueId activation(ValueId x, ops::ActivationKind kind, std::string_view name);
  ValueId gate(ValueId x, ops::ActivationKind kind, std::string_view name);
  ValueId qk_norm(ValueId packed, const std::string& name, const ops::Heads& heads, double eps);
  ValueId rope(ValueId packed, ValueId table, const ops::Heads& heads, std::string_view name);
  ValueId attention(ValueId packed, ops::Attention attention, double dropout, const std::string& name);
  // What queries see, and the logarithm of the sum of its weights.
  struct Attended {
    ValueId out;
    ValueId lse;
  };
  // Queries (B, T, H*D), keys and values (B, T, G*D) of their own. What of the keys is hidden from one may be seen by another: merged they
  // are the attention over all that either sees.
  Attended attend(const std::array<ValueId, 3>& tensors, ops::Attention attention, double dropout, const std::string& name);
  Attended merge_attention(const Attended& a, const Attended& b, const std::string& name);
  // Dropout and the dropout of a residual branch exist only in training graphs; elsewhere x and the plain sum.
  ValueId dropout(ValueId x, double rate, const std::string& name);
  ValueId residual(ValueId x, ValueId branch, double rate, const std::string& name);

  // Between the `members` ranks of an axis: of as many equal parts of x along its first dim, each goes to one of them (ops::Collective).
  ValueId all_to_all(ValueId x, const ops::Axis& axis, std::int64_t members, std::string_view name);

  // State that the forward pass of a training graph writes; other graphs have neither. Each data rank has its own of what it saw.
  // The mean of x's columns so far, each micro-batch with the weight `momentum`: a state of that name. All ranks' is the mean of theirs.
  void running_mean(ValueId x, const std::string& name, double momentum, const ops::Placement& deal = {});
  // x as it would be in another type; what that loses comes with the next micro-batch. The state of that name is what is still to come.
  ValueId round_with_error(ValueId x, const std::string& name, base::DType dtype);

  // The head: (.., C) -> losses in training and evaluation graphs, logits in inference graphs. Ends the forward pass.
  void head(ValueId x, ValueId weight, ValueId bias = {});

  // Ends the forward pass: (samples, sequence, width) -> the sum of its squared distances from the numbers "targets", or, in inference
  // graphs, what it is. Each number counts as a target, so the loss is the mean square.
  void squared_error(ValueId prediction);

  Graph finish() &&;

 private:
  ValueId ids(const std::string& name);
  ValueId samples();
  ValueId cached_attention(ValueId packed, const ops::Attention& attention, const std::string& name);
  ValueId apply(const ops::Op& op, std::vector<ValueId> inputs, std::string_view name);
  // In training graphs probabilities are dropped, by what comes behind the inputs.
  void drop(ops::Attention& attention, double rate, const std::string& name, std::vector<ValueId>& inputs);
  bool training() const { return options_.purpose == Purpose::train; }
  base::DType compute_dtype() const;

  BuildOptions options_;
  Graph graph_;
  BlockId block_;
  Live live_;  // of inputs
};

}  // namespace plimsoll::graph
