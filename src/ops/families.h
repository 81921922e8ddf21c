// One definition per operator, each in the file of its family. The argument only selects the operator.
#pragma once

#include "ops/definition.h"
#include "ops/placement.h"

namespace plimsoll::ops {

Definition define(const Embed&);
Definition define(const EmbedGrad&);
Definition define(const Linear&);
Definition define(const LinearGradInput&);
Definition define(const LinearGradWeight&);
Definition define(const BiasGrad&);
Definition define(const Activation&);
Definition define(const ActivationGrad&);
Definition define(const Gate&);
Definition define(const GateGrad&);
Definition define(const Add&);
Definition define(const Cast&);
Definition define(const TakeColumns&);
Definition define(const PutColumns&);
Definition define(const Dropout&);
Definition define(const Residual&);
Definition define(const Subtract&);
Definition define(const Norm&);
Definition define(const NormGrad&);
Definition define(const QkNorm&);
Definition define(const QkNormGrad&);
Definition define(const Rope&);
Definition define(const Attention&);
Definition define(const AttentionGrad&);
Definition define(const CachedAttention&);
Definition define(const CrossEntropy&);
Definition define(const CrossEntropyGrad&);
Definition define(const HeadLoss&);
Definition define(const BeginStep&);
Definition define(const SumLoss&);
Definition define(const SquaredNorm&);
Definition define(const PrepareUpdate&);
Definition define(const FinishStep&);
Definition define(const Update&);
Definition define(const UpdatePrelude&);
Definition define(const MergeSums&);
Definition define(const Orthogonalize&);
Definition define(const PutPart&);
Definition define(const TakePart&);
Definition define(const MergeScalars&);
Definition define(const FreshScalars&);
Definition define(const CheckRows&);
Definition define(const ShiftIds&);
Definition define(const CrossEntropyPart&);
Definition define(const CrossEntropyMerge&);
Definition define(const Collective&);
Definition define(const Message&);
Definition define(const Move&);
Definition define(const MoveRows&);
Definition define(const View&);
Definition define(const Slice&);
Definition define(const OwnShard&);
Definition define(const Pad&);
Definition define(const Accumulate&);
Definition define(const Quantize&);
Definition define(const NoteAmax&);
Definition define(const ScaledLinear&);
Definition define(const Encode&);
Definition define(const Decode&);
Definition define(const RunningMean&);
Definition define(const RoundWithError&);
Definition define(const AddError&);
Definition define(const KeepError&);
Definition define(const UndoSkipped&);
Definition define(const SumParts&);
Definition define(const RepeatRows&);
Definition define(const LossWeights&);
Definition define(const ActivationGradGrad&);
Definition define(const GateGradGrad&);
Definition define(const NormGradGrad&);
Definition define(const QkNormGradGrad&);
Definition define(const AttentionGradGrad&);
Definition define(const CrossEntropyGradGrad&);
Definition define(const MergeAttention&);
Definition define(const MergeAttentionGrad&);

// ---- why operators have no adjoint

inline constexpr std::string_view kMadeByLowering = "lowering puts it into a graph; differentiate the graph before it is lowered";
inline constexpr std::string_view kRounded = "8-bit products round their operands; differentiate before the graph is quantized";
inline constexpr std::string_view kOfScalars = "it works on the step scalars, which are no function of parameters";
inline constexpr std::string_view kNoThird = "third derivatives are not written";

// ---- pieces of adjoints (adjoint.cpp)

// The value with this shape (of as many elements) and element type.
ValueId as_type(AdjointBuilder& build, ValueId value, const TensorType& type);
// The sum of two gradients, of which either may be missing.
ValueId sum_of(AdjointBuilder& build, ValueId a, ValueId b);
// The row as every row of a tensor of the type (linear.cpp).
ValueId repeat_rows(AdjointBuilder& build, ValueId row, const TensorType& type);
// not_legal if a gradient arrived at a result that only the operator's own gradient reads.
void expect_no_gradient(const AdjointSite& site, std::size_t output, std::string_view what);

// ---- pieces that many definitions share

// The result has the type of the first operand.
std::vector<TensorType> infer_like_first(const Op& op, Types inputs);
// Output 0 may overwrite input 0.
std::vector<Alias> may_overwrite_first(const Op& op);
// Moves every operand once and does `flops` per element of the first result.
template <int kFlopsPerElement>
Work elementwise_work(const Op&, Types inputs, Types outputs) {
  return {static_cast<double>(kFlopsPerElement) * static_cast<double>(outputs[0].shape.elements()), bytes_of(inputs, outputs)};
}

// The first operand (rows, K) times the second (N, K), transposed.
std::vector<Product> product_with_transpose(const Op& op, Types inputs, Types outputs);

// The accumulating form of a gradient operator with an `accumulate` attribute.
template <typename Attributes>
std::optional<Op> accumulate_by_attribute(const Op& op) {
  Attributes attributes = std::get<Attributes>(op);
  if (attributes.accumulate) return std::nullopt;
  attributes.accumulate = true;
  return attributes;
}

// Outputs `first` .. `first + count - 1` accumulate into the last `count` inputs, of `plain_inputs + count`.
std::vector<Alias> accumulator_aliases(bool accumulate, int first_output, int count, int plain_inputs);

// Row by row: the first `kResults` results have rows.
template <int kResults>
std::optional<int> by_rows(const Op&) {
  return kResults;
}

// Every operand and result is placed as the first operand that is split.
PlacedOp place_elementwise(const PlacementQuery& query, std::size_t outputs);
template <std::size_t kOutputs>
PlacedOp place_alike(const PlacementQuery& query) {
  return place_elementwise(query, kOutputs);
}
PlacedOp place_whole(const PlacementQuery& query, std::size_t outputs);
// Some operand is dealt out by rows, or is a sum of parts that may be put together so.
bool goes_by_rows(const PlacementQuery& query);
// All rows of the first operand, dealt out.
Placement rows_of(const PlacementQuery& query);
// What an operator that drops elements must know of the rows it has.
template <typename Attributes>
Attributes with_rows_here(Attributes attributes, const PlacementQuery& query) {
  const Shape& shape = query.types[0].shape;
  if (attributes.rate <= 0.0) return attributes;
  attributes.first_row = query.seat.units_before(shape.rows());
  attributes.sample_rows = shape.rows() / shape[0];
  return attributes;
}
inline int last_dim(const TensorType& type) { return type.shape.rank() - 1; }
// The last dim of operand `input` is what is split.
bool last_is_split(const PlacementQuery& query, std::size_t input);
// The heads that a rank has when their key-value groups are dealt out.
Heads heads_here(const Heads& heads, const Seat& seat);

// Checks that the trailing inputs are accumulators of the right types.
void expect_accumulators(const Op& op, Types inputs, std::size_t plain_inputs, Types gradients);

}  // namespace plimsoll::ops
