// What every operator states once: result types, work, adjoint, which operands share memory, and what else passes and prices ask. Whoever
// needs to know something about operators asks for such a fact, not for an operator by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "base/shape.h"
#include "ops/op.h"

namespace plimsoll::ops {

using base::DType;
using base::Shape;
using base::TensorType;
using ValueId = base::Id<struct ValueTag>;
using Types = std::span<const TensorType>;

// The least work that computes the result: floating-point operations, and each operand through memory once.
struct Work {
  double flops = 0.0;
  double bytes = 0.0;
};

// Output `output` lies in the memory of input `input`: always (required), or where nothing needs the input afterwards.
struct Alias {
  int output = 0;
  int input = 0;
  bool required = false;
  bool view = false;       // nothing is written: the input can still be read
  bool own_shard = false;  // the smaller of the two is this rank's shard of the larger
  bool part = false;       // the output is a part of the input, from its element `first` on
  std::int64_t first = 0;
};

// What runs when an operator's turn comes: an instruction of the plan, or nothing, where it is another look at the same memory.
enum class Runs : std::uint8_t { compute, collective, message, copy, row_copy, nothing };

// The sum in the step scalars that an operator adds its second operand to.
enum class Sum : std::uint8_t { none, losses, squares };

// A matrix product: (rows, depth) times (depth, columns). A factor may lie in memory the other way round.
struct Product {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t depth = 1;
  bool left_transposed = false;
  bool right_transposed = false;
};

// What attention compares: every query of a sample with every key, for each head.
struct Scores {
  std::int64_t samples = 1;
  std::int64_t heads = 1;
  std::int64_t length = 1;  // queries
  std::int64_t keys = 1;
  std::int64_t dim = 1;    // of a head
  bool gradients = false;  // of the backward pass, which makes the scores again
  // Of a pattern: pairs in the tiles that it does not leave empty, for each pair that is visible, and for each that the band alone shows.
  double listed = 1.0;
  double density = 1.0;

  std::int64_t comparisons() const { return samples * heads; }  // of a sample's queries with its keys
  double count() const { return static_cast<double>(comparisons()) * static_cast<double>(length) * static_cast<double>(keys); }
};

// A cheaper operator that makes some results of a call again from others, bit for bit: a norm from the sum it normalised, an
// activation from what it was applied to.
struct Rebuild {
  struct Source {
    bool output = false;  // of the call; else an input of it
    int index = 0;
  };
  Op op;
  std::vector<Source> inputs;
  std::vector<int> outputs;  // for each result of `op`, which result of the call it is
};

// How an operand of a call is made again from its results and its other operands: what reversible layers do instead of keeping it.
struct Inverse {
  Op op;
  std::vector<Rebuild::Source> inputs;
  bool exact = false;  // to the bit; else but for rounding
};

// Where an adjoint is asked for: the forward operator with its operands, and the gradients that reached its outputs
// (invalid where none did).
struct AdjointSite {
  const Op& op;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  std::span<const ValueId> output_grads;
};

// What an adjoint writes to; the graph implements it.
class AdjointBuilder {
 public:
  virtual ~AdjointBuilder() = default;
  virtual const TensorType& type(ValueId value) const = 0;
  // False for frozen parameters and what comes before the first trained one: no gradient is wanted.
  virtual bool wants_grad(ValueId value) const = 0;
  // The element type of a parameter's gradient.
  virtual DType grad_dtype(ValueId parameter) const = 0;
  virtual std::vector<ValueId> emit(const Op& op, std::vector<ValueId> inputs) = 0;
  // The block of step scalars, which every training graph has.
  virtual ValueId scalars() const = 0;
};

struct PlacementQuery;
struct PlacedOp;

struct Definition {
  // Result types; bad_input with the operator's name and the shapes when the operands do not fit.
  std::vector<TensorType> (*infer)(const Op& op, Types inputs);
  Work (*work)(const Op& op, Types inputs, Types outputs);
  // (optional) One gradient per input, invalid where there is none. What the forward pass saved for a gradient operator (statistics, an
  // attention's results) is a function of that operator's other operands: its adjoint counts it there, and gives it no gradient of its own.
  std::vector<ValueId> (*adjoint)(const AdjointSite& site, AdjointBuilder& build) = nullptr;
  // Why there is no adjoint. Every operator has the one or the other.
  std::string_view no_adjoint = {};
  // (optional) Operands that share memory.
  std::vector<Alias> (*aliases)(const Op& op) = nullptr;
  // (optional) The form of a gradient operator that adds to its parameter gradients; nullopt if this one already does
  // or has none. The present values go behind the other inputs, in the order of accumulated_outputs.
  std::optional<Op> (*accumulating)(const Op& op) = nullptr;
  // (optional) The form that adds one more operand, behind the others, to its first output; nullopt if it already does.
  std::optional<Op> (*adding)(const Op& op) = nullptr;
  // (optional) Which outputs are parameter gradients that can be added to.
  std::vector<int> (*accumulated_outputs)(const Op& op) = nullptr;
  // (optional) How to make some results again from others; nullopt: only by running all of it.
  std::optional<Rebuild> (*rebuild)(const Op& op) = nullptr;
  // (optional) How to make an operand again; nullopt: it cannot be, or not from less than the operand itself.
  std::optional<Inverse> (*inverse)(const Op& op, std::size_t input, Types inputs) = nullptr;
  // (optional) What becomes of it when operands are split over ranks (placement.h). Null: all operands must be whole.
  PlacedOp (*place)(const PlacementQuery& query) = nullptr;

  // ---- facts

  Runs runs = Runs::compute;
  // (optional) Where its results lie. Null: in the device's memory.
  Tier (*tier_of_results)(const Op& op) = nullptr;
  // (optional) The matrix products that it is made of. Null: none.
  std::vector<Product> (*products)(const Op& op, Types inputs, Types outputs) = nullptr;
  // The result of the first of them passes through memory in chunks, and is never there whole.
  bool chunks_product = false;
  // (optional) The scores between its two products. Null: it is no attention.
  Scores (*scores)(const Op& op, Types inputs) = nullptr;
  // It updates a parameter: (scalars, gradient, weight, states.., [copy]) -> (weight, states.., [copy], [sent]), all but what is sent in
  // place.
  bool update = false;
  // (optional) The form of an update that does not write the weight in the type the model computes with; nullopt: this one does not.
  std::optional<Op> (*without_copy)(const Op& op) = nullptr;
  // (optional) The form of an update whose copy only another device reads; nullopt: it has no copy, or is of that form.
  std::optional<Op> (*copy_leaves)(const Op& op) = nullptr;
  // (optional) The form of an update that also gives, for another device, what `behind` makes of its f32 weight; nullopt: it cannot.
  std::optional<Op> (*sending)(const Op& op, const Op& behind) = nullptr;
  // It does to a part of its operands what it does to them whole; see is_elementwise.
  bool elementwise = false;
  // It differs from rank to rank of the tensor axis where their operands are the same.
  bool differs_by_rank = false;
  // A loss: where no gradient arrives at its losses, they count as the step scalars say (loss scale over valid targets).
  bool counts_itself = false;
  Sum sums = Sum::none;
  // (optional) It works row by row where only the first so many rows of operands hold anything: so many of its first results have a row
  // for each of those, and all others are sums over rows. nullopt, or null: it needs all rows.
  std::optional<int> (*live_rows)(const Op& op) = nullptr;
  // Its result begins a chain of step scalars (graph/scalar_chains.h).
  bool begins_scalars = false;
};

const Definition& definition_of(const Op& op);
std::vector<Alias> aliases_of(const Op& op);
std::optional<Inverse> inverse_of(const Op& op, std::size_t input, Types inputs);

inline bool is_view(const Op& op) { return definition_of(op).runs == Runs::nothing; }
inline bool is_collective(const Op& op) { return definition_of(op).runs == Runs::collective; }
inline bool is_message(const Op& op) { return definition_of(op).runs == Runs::message; }
inline bool is_copy(const Op& op) { return definition_of(op).runs == Runs::copy; }
// Of attention or its gradient: what it attends to, and the packed heads (or the queries) among its operands.
struct AttentionView {
  const Attention& attention;
  bool backward = false;

  std::size_t packed() const { return backward ? 1 : 0; }
};
AttentionView attention_of(const Op& op);
// It does to a part of its operands what it does to them whole: of collectives, those that move no element to another place.
bool is_elementwise(const Op& op);
inline bool is_update(const Op& op) { return definition_of(op).update; }
inline bool sums_squares(const Op& op) { return definition_of(op).sums == Sum::squares; }
// The prelude of an update; nullptr: it is something else.
const UpdatePrelude* prelude_in(const Op& op);
// An update that reads what a prelude made of the whole parameter.
bool has_prelude(const Op& op);
// Where an update reads a step of the whole matrix; nullopt: nowhere.
std::optional<std::size_t> step_operand(const Op& op);
// Of an update: whether it also writes the weight in the type the model computes with.
inline bool has_copy(const Op& op) { return definition_of(op).without_copy(op).has_value(); }

// Each operand and result through memory once: the bytes of most operators.
double bytes_of(Types inputs, Types outputs);

// `condition` or bad_input "[linear] ..." with the operand types.
void expect(bool condition, const Op& op, Types inputs, std::string_view expected);

}  // namespace plimsoll::ops
