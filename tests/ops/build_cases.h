// How to make a case of each operator from its attributes and sizes. `dtype` is the element type of activations and of
// the weights they meet; the gradient operators' own dtype attribute says what parameter gradients are kept in.
#pragma once

#include "ops/cases.h"
#include "support/updates.h"

namespace plimsoll::op_cases {

// A step in the middle of a run, with no value that would hide a missing factor.
ops::StepScalars mid_run();

Case embed_case(const Shape& ids, const std::vector<std::int64_t>& table_rows, std::int64_t width, DType dtype);
Case embed_grad_case(const Shape& ids, std::int64_t table_rows, std::int64_t width, DType dtype, DType grad_dtype);
Case linear_case(const ops::Linear& op, const Shape& x, std::int64_t outputs, DType dtype);
Case linear_grad_input_case(const Shape& dy, std::int64_t inputs, DType dtype, ops::ActivationKind activation = ops::ActivationKind::none);
Case linear_grad_weight_case(const Shape& dy, std::int64_t inputs, DType dtype, DType grad_dtype);
Case bias_grad_case(const Shape& dy, DType dtype, DType grad_dtype);
Case repeat_rows_case(const Shape& y, DType dtype, DType row_dtype);
Case quantize_case(const ops::Quantize& op, const Shape& x, DType dtype, double deviation);
Case scaled_linear_case(const ops::ScaledLinear& op, const Shape& a, std::int64_t outputs, DType first);
Case note_amax_case(std::int64_t entries, std::int64_t ranks);
Case encode_case(const ops::FormInfo& form, const Shape& x, DType dtype, double deviation);
Case decode_case(const ops::FormInfo& form, const Shape& y, DType dtype);
Case running_mean_case(double momentum, const Shape& x, DType dtype);
Case round_with_error_case(DType to, const Shape& x, DType dtype);
Case add_error_case(const Shape& x, std::int64_t known, DType dtype, const ops::StepScalars& scalars);
Case keep_error_case(const Shape& z, std::int64_t known, const ops::StepScalars& scalars);
Case undo_skipped_case(const Shape& state, const ops::StepScalars& scalars);
Case sum_parts_case(const ops::SumParts& op, const Shape& x, DType dtype);
Case activation_case(ops::ActivationKind kind, const Shape& x, DType dtype);
Case activation_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype);
Case activation_grad_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype);
Case gate_case(ops::ActivationKind kind, const Shape& x, DType dtype);
Case gate_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype);
Case gate_grad_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype);
Case add_case(const Shape& x, DType dtype);
Case pad_case(std::int64_t elements, std::int64_t valid, DType dtype);
Case accumulate_case(const Shape& x, DType dtype);
Case take_columns_case(const ops::TakeColumns& op, const Shape& x, DType dtype);
Case put_columns_case(const ops::PutColumns& op, const Shape& x, DType dtype);
Case merge_scalars_case(const ops::MergeScalars& op);
Case shift_ids_case(const Shape& ids, const ops::ShiftIds& op);
Case cross_entropy_part_case(const Shape& logits, DType dtype);
Case cross_entropy_merge_case(std::int64_t members, std::int64_t rows);
Case cast_case(const Shape& x, DType from, DType to);
Case dropout_case(double rate, const Shape& x, DType dtype);
Case residual_case(double rate, const Shape& x, DType dtype);
Case subtract_case(double rate, const Shape& y, DType dtype);
Case norm_case(const ops::Norm& op, const Shape& x, DType dtype);
Case norm_grad_case(const ops::NormGrad& op, const Shape& x, DType dtype);
Case norm_grad_grad_case(const ops::NormGradGrad& op, const Shape& x, DType dtype);
Case qk_norm_case(const ops::QkNorm& op, std::int64_t batch, std::int64_t length, DType dtype);
Case qk_norm_grad_case(const ops::QkNormGrad& op, std::int64_t batch, std::int64_t length, DType dtype);
Case qk_norm_grad_grad_case(const ops::QkNormGradGrad& op, std::int64_t batch, std::int64_t length, DType dtype);
Case rope_case(const ops::Rope& op, std::int64_t batch, std::int64_t length, DType dtype);
Case attention_case(const ops::Attention& op, std::int64_t batch, std::int64_t length, DType dtype);
Case attention_grad_case(const ops::Attention& forward, std::int64_t batch, std::int64_t length, DType dtype);
// Queries and keys as operands of their own; the sequence is as long as dropout is to count it.
Case separate_attention_case(const ops::Attention& op, std::int64_t batch, std::int64_t queries, std::int64_t keys, DType dtype);
Case separate_attention_grad_case(const ops::Attention& forward, std::int64_t batch, std::int64_t queries, std::int64_t keys, DType dtype,
                                  bool of_lse);
Case merge_attention_case(const Shape& out, std::int64_t heads, DType first, DType second);
Case merge_attention_grad_case(const Shape& out, std::int64_t heads, DType first, DType second, bool of_lse);
Case attention_grad_grad_case(const ops::Attention& forward, std::int64_t batch, std::int64_t length, DType dtype);
Case cached_attention_case(const ops::CachedAttention& op, std::int64_t batch, std::int64_t length, std::int64_t slots, DType dtype);
Case cross_entropy_case(const Shape& logits, DType dtype);
Case cross_entropy_grad_case(const Shape& logits, DType dtype);
Case cross_entropy_grad_grad_case(const Shape& logits, DType dtype);
Case weighted(Case test);  // of the two above
Case loss_weights_case(std::int64_t rows, double factor);
Case head_loss_case(const ops::HeadLoss& op, const Shape& x, std::int64_t vocabulary, DType dtype);
Case scalars_case(const ops::Op& op, const ops::StepScalars& scalars);
Case sum_case(const ops::Op& op, const Shape& x, DType dtype);
// How an update's weight and averages are stored.
struct StateForms {
  DType weight = DType::f32;
  DType moments = DType::f32;
};

Case update_case(const ops::Update& op, const Shape& weight, DType gradient, DType copy, const ops::StepScalars& scalars,
                 const StateForms& forms = {});
Case prelude_case(const ops::UpdatePrelude& op, const Shape& weight, DType gradient, const StateForms& forms = {});
Case merge_sums_case(std::int64_t members);
Case orthogonalize_case(const ops::Orthogonalize& op, const Shape& x);
// Extents along the part's dim are the operator's.
Case put_part_case(const ops::PutPart& op, Shape part, DType dtype);
Case take_part_case(const ops::TakePart& op, Shape whole, DType dtype);

}  // namespace plimsoll::op_cases
