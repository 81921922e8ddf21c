// The mathematics of one micro-batch (and of the update that follows the last one) on a single device: a straight-line
// list of operators over typed values. Where things run, how long they live and when they run is decided later.
//
// Values are assigned once. An operator that works in place (an update, an accumulation) makes a new value; its
// definition says that the two share memory.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "ops/definition.h"
#include "ops/part.h"
#include "ops/placement.h"
#include "ops/state.h"

namespace plimsoll::graph {

using base::TensorType;
using ops::ValueId;
using NodeId = base::Id<struct NodeTag>;
using BlockId = base::Id<struct BlockTag>;

enum class Role : std::uint8_t {
  input,      // written before the micro-batch runs: tokens, targets, positions
  constant,   // written once: rotary tables
  parameter,  // in the element type the model computes with
  master,     // a parameter in f32, where the model computes in less
  state,      // of the optimizer; the keys and values of a text so far
  scalars,    // the block of step scalars
  gradient,   // of a parameter, where it lies in a slower tier between the micro-batches of a step
  computed,   // the result of an operator
};

// How a root value gets its first content; elements are drawn by (seed, name, element).
struct Init {
  enum class Kind : std::uint8_t { none, zeros, ones, normal, rope } kind = Kind::none;
  static constexpr int kKinds = 5;
  double std = 0.0;                   // normal
  std::vector<double> frequencies{};  // rope: angle per position, one per pair of dims
  bool operator==(const Init&) const = default;
};

// The parts of a step, in the order a single device runs them. A procedure holds the nodes of one block in one phase.
// `recompute` is what the forward pass made and did not keep, made again where the backward pass needs it; backward_weight is the
// part of the backward pass that nothing waits for but the update; join adds up what pipeline ranks have of the gradient of one weight.
enum class Phase : std::uint8_t { begin, forward, recompute, backward, backward_weight, join, norm, verdict, update, finish };

inline bool runs_per_micro_batch(Phase phase) { return phase >= Phase::forward && phase <= Phase::backward_weight; }

// Of a root that has room for more rows than hold anything (graph/live_rows.h).
struct Live {
  ValueId count{};  // i32: how many do
  std::int64_t bound = 0;
  double expected = 1.0;  // share of the bound that prices count with

  bool operator==(const Live&) const = default;
};

struct Value {
  std::string name;
  TensorType type{};
  Role role = Role::computed;
  BlockId block{};    // the block that makes it, or that owns it
  NodeId producer{};  // invalid for roots
  Init init{};
  ops::Placement deal{};               // of a parameter, or a state cut by itself: how tensor ranks would split it; whole if not at all
  ops::State state{};                  // of what outlives a step: how ranks have it, and who writes it
  ops::Part part{};                    // which part of a whole tensor a root holds, where ranks share one
  ops::Tier tier = ops::Tier::device;  // where it is
  bool all_micro_batches = false;      // one for all micro-batches of a step, as a parameter's gradient is
  bool begins_gradient = false;        // micro-batches add to it as to a parameter's gradient, whose beginning it is
  Live live{};                         // of a root with bounded rows
  ValueId in_memory_of{};              // beside what operators say, it lies where this value does

  bool operator==(const Value&) const = default;
};

// For which micro-batches of a step a node of a phase that runs for each of them does: `later` are all but the first.
enum class Turn : std::uint8_t { each, first, last, later };

struct Node {
  ops::Op op;
  std::vector<ValueId> inputs{};
  std::vector<ValueId> outputs{};
  BlockId block{};
  Phase phase = Phase::forward;
  Turn turn = Turn::each;
  // It belongs to the update that the step before left. It stands with this step's update and runs before the first use of what it makes.
  bool ahead = false;

  bool operator==(const Node&) const = default;
};

// One repeated layer, or what comes before and after them. The unit of stages, recompute and prefetch.
struct Block {
  std::string name;
  std::int32_t stage = 0;  // of the pipeline

  bool operator==(const Block&) const = default;
};

// What a weight is that is stored in a form (ops/forms): its value holds records.
struct Stored {
  const ops::FormInfo* form = ops::forms().data();
  TensorType decoded{};

  bool operator==(const Stored&) const = default;
};

// A trained tensor and what belongs to it.
struct Parameter {
  std::string name;
  ValueId weight{};               // what the model computes with
  ValueId master{};               // what is updated; equal to weight where that is what an update works on
  std::vector<ValueId> states{};  // of the optimizer; where updates are a step late, last the gradient that waits
  ValueId gradient{};             // its final value in the micro-batch; invalid when frozen
  bool frozen = false;
  bool gradient_leaves = false;  // what a micro-batch made of the gradient is kept in a slower tier
  bool rows_of_table = false;    // it holds the rows that a step reads of a table on disk
  std::optional<Stored> stored{};
  // Of a linear layer's weight, which rules for matrices update as such: how many rows of each matrix are in a unit where those of several
  // alternate; {}: it is one.
  std::optional<base::Shape> matrix{};
  // The axes of the mesh over which its gradient is summed; nullopt: those that say so for all (ops::AxisRow). Over an axis that shares out
  // the batch and is not among them each rank has its own of it, which its own samples train.
  std::optional<std::vector<ops::Axis>> sums_over{};

  bool sums(const ops::AxisRow& row) const {
    return sums_over ? std::find(sums_over->begin(), sums_over->end(), row.axis) != sums_over->end() : row.sums_gradients;
  }
  // Data ranks have the same of it.
  bool shared() const { return sums(*ops::known_axis(ops::Axis::data)); }

  bool operator==(const Parameter&) const = default;
};

struct Graph {
  base::IdVector<BlockId, Block> blocks;
  base::IdVector<ValueId, Value> values;
  base::IdVector<NodeId, Node> nodes;
  std::vector<Parameter> parameters;
  std::vector<ValueId> results;  // computed values that somebody outside reads: losses, logits
  ValueId scalars;               // invalid in graphs without a step
  ValueId pending{};             // where updates are a step late: the scalars that the waiting gradients are applied with

  ValueId add_value(Value value) { return values.add(std::move(value)); }
  // Appends a node with inferred results named `name` (or name.0, name.1, ... for several).
  std::vector<ValueId> add_node(const ops::Op& op, std::vector<ValueId> inputs, BlockId block, Phase phase, std::string_view name);
  // Appends a node whose results are values already.
  NodeId append(const Node& node);
  std::vector<TensorType> types(std::span<const ValueId> ids) const;
  bool operator==(const Graph&) const = default;
};

inline constexpr int kRoles = 8;
inline constexpr int kPhases = 10;
inline constexpr int kTurns = 4;

// Where a weight holds the upper halves of its f32 numbers (ops/forms/split.h): what has the rest of them.
struct LowHalves {
  ValueId low;  // the lower halves
  ValueId v;    // its signs
};
std::optional<LowHalves> low_halves(const Graph& graph, const Parameter& parameter);

std::string_view name_of(Phase phase);
std::string_view name_of(Role role);
std::string_view name_of(Turn turn);
std::string_view name_of(Init::Kind kind);

// Every way in which the graph is not well formed; empty for a good one. Nodes that run ahead of the step are a line of their own: they
// read and write what is there when the step begins.
std::vector<std::string> problems(const Graph& graph);

// Stops with the list when there are problems; `after` names the pass that made the graph.
void verify(const Graph& graph, std::string_view after);

// Told of a pass that had something to do, and of the graph that it left.
using PassDone = std::function<void(std::string_view pass, const Graph& graph)>;

// By value: the state that it is, or is the newest content of; invalid where it is none.
std::vector<ValueId> states_of_values(const Graph& graph);

// By node: whether it belongs to the forward pass and reads or writes state that the forward pass writes, or adds to the step's scalars. It
// runs once for each micro-batch: a second time it would find, and leave, something else.
std::vector<bool> nodes_that_run_once(const Graph& graph);

// Drops nodes whose results nobody reads (values of roots and `results` count as read), and values nobody mentions.
void remove_unused(Graph& graph);

}  // namespace plimsoll::graph
