#include "ops/build_cases.h"

#include <algorithm>
#include <numeric>

namespace plimsoll::op_cases {

namespace {

constexpr std::uint64_t kSite = 0x51AB'1234'77ull;

Shape with_last(Shape shape, std::int64_t extent) {
  shape.set(-1, extent);
  return shape;
}

Shape with_new_last(const Shape& shape, std::int64_t extent) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.push_back(extent);
  return Shape(std::span<const std::int64_t>(dims));
}

Shape without_last(const Shape& shape) { return Shape(shape.dims().first(static_cast<std::size_t>(shape.rank() - 1))); }

Input scalars_input(const ops::StepScalars& scalars) { return {ops::step_scalars_type(), scalars}; }

// Sample numbers are those of a long run.
Input samples_input(std::int64_t batch) { return {{DType::i32, Shape{batch}}, Integers{0, 1 << 30}}; }

// About one target in ten is not counted.
Input targets_input(const Shape& shape, std::int64_t vocabulary) {
  return {{DType::i32, shape}, Integers{-std::max<std::int64_t>(1, vocabulary / 10), vocabulary}};
}

std::vector<std::size_t> first_indices(std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

}  // namespace

ops::StepScalars mid_run() {
  ops::StepScalars scalars;
  scalars.seed = 0x1234'5678'9ABCull;
  scalars.step = 41;
  scalars.learning_rate = 0.25f;  // large, so that an update cannot hide in a weight's rounding
  scalars.inverse_tokens = 1.0f / 37.0f;
  scalars.loss_scale = 8.0f;
  scalars.updates = 5;
  scalars.good_steps = 3;
  scalars.hysteresis = 1;
  scalars.gradient_norm = 3.5f;
  scalars.gradient_multiplier = 0.375f;
  scalars.squared_norm.add(1234.5f);
  scalars.loss.add(17.25f);
  return scalars;
}

Case embed_case(const Shape& ids, const std::vector<std::int64_t>& table_rows, std::int64_t width, DType dtype) {
  Case test{ops::Embed{.tables = static_cast<std::int64_t>(table_rows.size())}, {}, {}, {0}};
  for (const std::int64_t rows : table_rows) {
    test.inputs.push_back({{DType::i32, ids}, Integers{0, rows}});
    test.gradient_inputs.push_back(test.inputs.size());
    test.inputs.emplace_back().type = {dtype, Shape{rows, width}};  // gcc 12 finds a temporary's alternatives uninitialised
  }
  return test;
}

Case embed_grad_case(const Shape& ids, std::int64_t table_rows, std::int64_t width, DType dtype, DType grad_dtype) {
  return {ops::EmbedGrad{.rows = table_rows, .dtype = grad_dtype},
          {{{DType::i32, ids}, Integers{0, table_rows}}, {{dtype, with_new_last(ids, width)}}},
          {1},
          {0}};
}

Case linear_case(const ops::Linear& op, const Shape& x, std::int64_t outputs, DType dtype) {
  Case test{op, {{{dtype, x}}, {{dtype, Shape{outputs, x[-1]}}}}, {0, 1}, {0}};
  if (op.bias) {
    test.inputs.push_back({{dtype, Shape{outputs}}});
    test.gradient_inputs.push_back(2);
  }
  return test;
}

Case linear_grad_input_case(const Shape& dy, std::int64_t inputs, DType dtype, ops::ActivationKind activation) {
  Case test{ops::LinearGradInput{.activation = activation}, {{{dtype, dy}}, {{dtype, Shape{dy[-1], inputs}}}}, {0, 1}, {0}};
  if (activation == ops::ActivationKind::none) return test;
  test.inputs.push_back({{dtype, with_last(dy, inputs)}});
  test.gradient_inputs.push_back(2);
  return test;
}

Case linear_grad_weight_case(const Shape& dy, std::int64_t inputs, DType dtype, DType grad_dtype) {
  return {ops::LinearGradWeight{.dtype = grad_dtype}, {{{dtype, dy}}, {{dtype, with_last(dy, inputs)}}}, {0, 1}, {0}};
}

Case bias_grad_case(const Shape& dy, DType dtype, DType grad_dtype) {
  return {ops::BiasGrad{.dtype = grad_dtype}, {{{dtype, dy}}}, {0}, {0}};
}

Case repeat_rows_case(const Shape& y, DType dtype, DType row_dtype) {
  return {ops::RepeatRows{.shape = y, .dtype = dtype}, {{{row_dtype, Shape{y[-1]}}}}, {0}, {0}};
}

Case quantize_case(const ops::Quantize& op, const Shape& x, DType dtype, double deviation) {
  Case test{op, {{{dtype, x}, Reals{.deviation = deviation}}}};
  if (op.slopes) test.inputs.push_back({{dtype, x}});
  if (op.history > 0) test.inputs.push_back({{DType::f32, Shape{op.history}}, Reals{.deviation = deviation, .positive = true}});
  return test;
}

Case scaled_linear_case(const ops::ScaledLinear& op, const Shape& a, std::int64_t outputs, DType first) {
  const Input scale{{DType::f32, Shape{1}}, Reals{.deviation = 0.25, .positive = true}};
  Case test{op, {{{first, a}}, {{DType::f8e4m3, Shape{outputs, a[-1]}}}, scale, scale}};
  if (op.bias) test.inputs.push_back({{DType::f32, Shape{outputs}}});
  return test;
}

Case note_amax_case(std::int64_t entries, std::int64_t ranks) {
  return {ops::NoteAmax{},
          {{{DType::f32, Shape{entries}}, Reals{.positive = true}}, {{DType::f32, Shape{ranks}}, Reals{.positive = true}}}};
}

Case encode_case(const ops::FormInfo& form, const Shape& x, DType dtype, double deviation) {
  return {ops::Encode{.form = &form}, {{{dtype, x}, Reals{.deviation = deviation}}}};
}

Case decode_case(const ops::FormInfo& form, const Shape& y, DType dtype) {
  const ops::Encode encode{.form = &form};
  return {ops::Decode{.form = &form, .columns = y[-1], .dtype = dtype}, {{ops::stored_type(form, y), Encoded{encode, y}}}};
}

Case running_mean_case(double momentum, const Shape& x, DType dtype) {
  return {ops::RunningMean{.momentum = momentum}, {{{dtype, x}}, {{DType::f32, Shape{x[-1]}}}}};
}

Case round_with_error_case(DType to, const Shape& x, DType dtype) {
  return {ops::RoundWithError{.dtype = to}, {{{dtype, x}}, {{DType::f32, x}, Reals{.deviation = 1e-3}}}};
}

Case add_error_case(const Shape& x, std::int64_t known, DType dtype, const ops::StepScalars& scalars) {
  return {ops::AddError{}, {scalars_input(scalars), {{dtype, x}}, {{DType::f32, Shape{known}}, Reals{.deviation = 1e-3}}}};
}

Case keep_error_case(const Shape& z, std::int64_t known, const ops::StepScalars& scalars) {
  return {ops::KeepError{}, {scalars_input(scalars), {{DType::f32, z}}, {{DType::f32, z}}, {{DType::f32, Shape{known}}}}};
}

Case undo_skipped_case(const Shape& state, const ops::StepScalars& scalars) {
  return {ops::UndoSkipped{}, {scalars_input(scalars), {{DType::f32, state}}, {{DType::f32, state}}}};
}

Case sum_parts_case(const ops::SumParts& op, const Shape& x, DType dtype) { return {op, {{{dtype, x}}}}; }

Case activation_case(ops::ActivationKind kind, const Shape& x, DType dtype) {
  return {ops::Activation{.kind = kind}, {{{dtype, x}}}, {0}, {0}};
}

Case activation_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype) {
  return {ops::ActivationGrad{.kind = kind}, {{{dtype, x}}, {{dtype, x}}}, {0, 1}, {0}};
}

Case activation_grad_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype) {
  return {ops::ActivationGradGrad{.kind = kind}, {{{dtype, x}}, {{dtype, x}}, {{dtype, x}}}};
}

Case gate_case(ops::ActivationKind kind, const Shape& x, DType dtype) { return {ops::Gate{.kind = kind}, {{{dtype, x}}}, {0}, {0}}; }

Case gate_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype) {
  return {ops::GateGrad{.kind = kind}, {{{dtype, with_last(x, x[-1] / 2)}}, {{dtype, x}}}, {0, 1}, {0}};
}

Case gate_grad_grad_case(ops::ActivationKind kind, const Shape& x, DType dtype) {
  return {ops::GateGradGrad{.kind = kind}, {{{dtype, x}}, {{dtype, with_last(x, x[-1] / 2)}}, {{dtype, x}}}};
}

Case pad_case(std::int64_t elements, std::int64_t valid, DType dtype) { return {ops::Pad{.valid = valid}, {{{dtype, Shape{elements}}}}}; }

Case accumulate_case(const Shape& x, DType dtype) { return {ops::Accumulate{}, {{{dtype, x}}}, {0}, {0}}; }

Case take_columns_case(const ops::TakeColumns& op, const Shape& x, DType dtype) { return {op, {{{dtype, x}}}}; }

Case put_columns_case(const ops::PutColumns& op, const Shape& x, DType dtype) {
  Case test{op, {{{dtype, x}}}};
  if (op.into) test.inputs.push_back({{dtype, with_last(x, op.columns)}});
  return test;
}

Case merge_scalars_case(const ops::MergeScalars& op) {
  const auto bytes = static_cast<std::int64_t>(sizeof(ops::StepScalars)) * op.members;
  return {op, {scalars_input(mid_run()), {{DType::u8, Shape{bytes}}, Integers{0, 2}}}};
}

Case shift_ids_case(const Shape& ids, const ops::ShiftIds& op) { return {op, {{{DType::i32, ids}, Integers{-1, op.first + op.rows + 5}}}}; }

Case cross_entropy_part_case(const Shape& logits, DType dtype) {
  return {ops::CrossEntropyPart{}, {{{dtype, logits}}, {{DType::i32, Shape{logits.rows()}}, Integers{-1, logits[-1]}}}};
}

Case cross_entropy_merge_case(std::int64_t members, std::int64_t rows) {
  return {ops::CrossEntropyMerge{.members = members},
          {{{DType::f32, Shape{members * rows * 2}}}, {{DType::i32, Shape{rows}}, Integers{-1, 50}}}};
}

Case add_case(const Shape& x, DType dtype) { return {ops::Add{}, {{{dtype, x}}, {{dtype, x}}}, {0, 1}, {0}}; }

Case cast_case(const Shape& x, DType from, DType to) { return {ops::Cast{.dtype = to}, {{{from, x}}}, {0}, {0}}; }

Case dropout_case(double rate, const Shape& x, DType dtype) {
  return {ops::Dropout{.rate = rate, .site = kSite}, {{{dtype, x}}, samples_input(x[0]), scalars_input(mid_run())}, {0}, {0}};
}

Case residual_case(double rate, const Shape& x, DType dtype) {
  Case test{ops::Residual{.rate = rate, .site = rate > 0.0 ? kSite : 0}, {{{dtype, x}}, {{dtype, x}}}, {0, 1}, {0}};
  if (rate > 0.0) test.inputs.insert(test.inputs.end(), {samples_input(x[0]), scalars_input(mid_run())});
  return test;
}

Case subtract_case(double rate, const Shape& y, DType dtype) {
  Case test = residual_case(rate, y, dtype);
  test.op = ops::Subtract{.rate = rate, .site = rate > 0.0 ? kSite : 0};
  test.gradient_inputs = test.gradient_outputs = {};
  return test;
}

Case norm_case(const ops::Norm& op, const Shape& x, DType dtype) {
  Case test{op, {{{dtype, x}}}, {0}, {0}};
  if (op.residual) {
    test.inputs.push_back({{dtype, x}});
    test.gradient_outputs.push_back(1);
  }
  test.inputs.push_back({{dtype, Shape{x[-1]}}});
  if (op.bias) test.inputs.push_back({{dtype, Shape{x[-1]}}});
  test.gradient_inputs = first_indices(test.inputs.size());
  if (op.residual && op.rate > 0.0) test.inputs.insert(test.inputs.end(), {samples_input(x[0]), scalars_input(mid_run())});
  return test;
}

Case norm_grad_case(const ops::NormGrad& op, const Shape& x, DType dtype) {
  const Made stats{ops::Norm{.kind = op.kind}, {1, 2}, 1};
  Case test{op, {{{dtype, x}}, {{dtype, x}}, {{dtype, Shape{x[-1]}}}, {{DType::f32, Shape{x.rows(), 2}}, stats}}, {0, 1, 2}, {0, 1}};
  if (op.bias) test.gradient_outputs.push_back(2);
  if (!op.has_dsum) return test;
  test.inputs.push_back({{dtype, x}});
  test.gradient_inputs.push_back(4);
  return test;
}

Case norm_grad_grad_case(const ops::NormGradGrad& op, const Shape& x, DType dtype) {
  Case test{op, norm_grad_case({.kind = op.kind}, x, dtype).inputs};
  if (op.input) test.inputs.push_back({{dtype, x}});
  if (op.weight) test.inputs.push_back({{op.dtype, Shape{x[-1]}}});
  return test;
}

Case qk_norm_case(const ops::QkNorm& op, std::int64_t batch, std::int64_t length, DType dtype) {
  const Shape weight{op.heads.dim};
  return {op, {{{dtype, Shape{batch, length, op.heads.packed_width()}}}, {{dtype, weight}}, {{dtype, weight}}}, {0, 1, 2}, {0}};
}

Case qk_norm_grad_case(const ops::QkNormGrad& op, std::int64_t batch, std::int64_t length, DType dtype) {
  const Shape packed{batch, length, op.heads.packed_width()};
  const Shape weight{op.heads.dim};
  const Made stats{ops::QkNorm{.heads = op.heads}, {1, 2, 3}, 1};
  return {op,
          {{{dtype, packed}},
           {{dtype, packed}},
           {{dtype, weight}},
           {{dtype, weight}},
           {{DType::f32, Shape{batch * length, op.heads.query + op.heads.kv}}, stats}},
          {0, 1, 2, 3},
          {0, 1, 2}};
}

Case qk_norm_grad_grad_case(const ops::QkNormGradGrad& op, std::int64_t batch, std::int64_t length, DType dtype) {
  Case test{op, qk_norm_grad_case({.heads = op.heads}, batch, length, dtype).inputs};
  if (op.input) test.inputs.push_back({{dtype, Shape{batch, length, op.heads.packed_width()}}});
  for (const bool arrives : {op.query, op.key}) {
    if (arrives) test.inputs.push_back({{op.dtype, Shape{op.heads.dim}}});
  }
  return test;
}

Case rope_case(const ops::Rope& op, std::int64_t batch, std::int64_t length, DType dtype) {
  const std::int64_t context = 2 * length;
  return {op,
          {{{dtype, Shape{batch, length, op.heads.packed_width()}}},
           {{DType::i32, Shape{batch, length}}, Integers{0, context}},
           {{DType::f32, Shape{context, op.heads.dim}}, Rotations{}}},
          {0},
          {0}};
}

Case attention_case(const ops::Attention& op, std::int64_t batch, std::int64_t length, DType dtype) {
  ops::Attention attention = op;
  if (op.rate > 0.0) attention.site = kSite;
  Case test{attention, {{{dtype, Shape{batch, length, op.heads.packed_width()}}}}, {0}, {0}};
  if (op.segmented) test.inputs.push_back({{DType::i32, Shape{batch, length}}, Segments{}});
  if (op.rate > 0.0) test.inputs.insert(test.inputs.end(), {samples_input(batch), scalars_input(mid_run())});
  return test;
}

Case separate_attention_case(const ops::Attention& op, std::int64_t batch, std::int64_t queries, std::int64_t keys, DType dtype) {
  ops::Attention attention = op;
  attention.separate = true;
  if (op.rate > 0.0) attention.site = kSite;
  const TensorType of_keys{dtype, Shape{batch, keys, op.heads.kv * op.heads.dim}};
  Case test{attention, {{{dtype, Shape{batch, queries, op.heads.query * op.heads.dim}}}, {of_keys}, {of_keys}}, {0, 1, 2}, {0, 1}};
  // Log-sums that are infinite have no differences.
  const bool all_see = !op.segmented && op.pattern.rule == nullptr && op.window == 0 && (!op.causal || op.first_query >= op.first_key);
  if (!all_see) test.gradient_outputs = {0};
  if (op.segmented) {
    test.inputs.push_back({{DType::i32, Shape{batch, queries}}, Segments{}});
    test.inputs.push_back({{DType::i32, Shape{batch, keys}}, Segments{}});
  }
  if (op.rate > 0.0) test.inputs.insert(test.inputs.end(), {samples_input(batch), scalars_input(mid_run())});
  return test;
}

namespace {

// (dout, the forward pass's tensors, its results, [dlse], its masks)
Case gradient_of_attention(const Case& forward, bool of_lse) {
  const auto& attention = std::get<ops::Attention>(forward.op);
  const auto tensors = static_cast<std::ptrdiff_t>(attention.tensors());
  const ops::AttentionGrad grad{attention, of_lse};
  const std::vector<TensorType> results = forward.output_types();
  std::vector<std::size_t> operands;
  for (std::size_t index = 0; index < forward.inputs.size(); ++index)
    operands.push_back(index < attention.tensors() ? 1 + index : grad.masks() + index - attention.tensors());
  Case test{grad, {{results[0]}}};
  test.inputs.insert(test.inputs.end(), forward.inputs.begin(), forward.inputs.begin() + tensors);
  for (std::size_t output = 0; output < results.size(); ++output)
    test.inputs.push_back({results[output], Made{attention, operands, output}});
  if (of_lse) test.inputs.push_back({results[1]});
  test.inputs.insert(test.inputs.end(), forward.inputs.begin() + tensors, forward.inputs.end());
  return test;
}

}  // namespace

Case attention_grad_case(const ops::Attention& forward, std::int64_t batch, std::int64_t length, DType dtype) {
  Case test = gradient_of_attention(attention_case(forward, batch, length, dtype), false);
  test.gradient_inputs = {0, 1};
  test.gradient_outputs = {0};
  return test;
}

Case separate_attention_grad_case(const ops::Attention& forward, std::int64_t batch, std::int64_t queries, std::int64_t keys, DType dtype,
                                  bool of_lse) {
  return gradient_of_attention(separate_attention_case(forward, batch, queries, keys, dtype), of_lse);
}

Case merge_attention_case(const Shape& out, std::int64_t heads, DType first, DType second) {
  const TensorType lse{DType::f32, Shape{out[0], heads, out[1]}};
  return {ops::MergeAttention{}, {{{first, out}}, {lse}, {{second, out}}, {lse}}, {0, 1, 2, 3}, {0, 1}};
}

Case merge_attention_grad_case(const Shape& out, std::int64_t heads, DType first, DType second, bool of_lse) {
  const Case forward = merge_attention_case(out, heads, first, second);
  Case test{ops::MergeAttentionGrad{.of_lse = of_lse}, {forward.inputs[0]}};
  if (of_lse) test.inputs.push_back(forward.inputs[1]);
  test.inputs.insert(test.inputs.end(), forward.inputs.begin(), forward.inputs.end());
  return test;
}

Case attention_grad_grad_case(const ops::Attention& forward, std::int64_t batch, std::int64_t length, DType dtype) {
  const Case gradient = attention_grad_case(forward, batch, length, dtype);
  Case test{ops::AttentionGradGrad{std::get<ops::AttentionGrad>(gradient.op).forward}, gradient.inputs};
  test.inputs.insert(test.inputs.begin(), {test.inputs[1].type});
  for (Input& input : test.inputs) {
    if (auto* made = std::get_if<Made>(&input.source)) std::for_each(made->operands.begin(), made->operands.end(), [](auto& at) { ++at; });
  }
  return test;
}

Case cached_attention_case(const ops::CachedAttention& op, std::int64_t batch, std::int64_t length, std::int64_t slots, DType dtype) {
  return {op,
          {{{dtype, Shape{batch, length, op.heads.packed_width()}}},
           {{DType::i32, Shape{batch, length}}, Integers{.low = 0, .high = slots}},
           {{dtype, Shape{batch, 2 * op.heads.kv, slots, op.heads.dim}}}}};
}

Case cross_entropy_case(const Shape& logits, DType dtype) {
  return {ops::CrossEntropy{}, {{{dtype, logits}, Reals{.deviation = 3.0}}, targets_input(without_last(logits), logits[-1])}, {0}, {0}};
}

Case cross_entropy_grad_case(const Shape& logits, DType dtype) {
  return {ops::CrossEntropyGrad{},
          {{{dtype, logits}, Reals{.deviation = 3.0}},
           targets_input(without_last(logits), logits[-1]),
           {{DType::f32, Shape{logits.rows()}}, Made{ops::CrossEntropy{}, {0, 1}, 1}},
           scalars_input(mid_run())},
          {0},
          {0}};
}

// With a weight for each row in the place of the scalars, which are the last operand.
Case weighted(Case test) {
  const std::int64_t rows = test.inputs[0].type.shape.rows();
  test.inputs.back() = {{DType::f32, Shape{rows}}};
  if (auto* grad = std::get_if<ops::CrossEntropyGrad>(&test.op)) {
    grad->weighted = true;
    test.gradient_inputs.push_back(3);
  } else {
    std::get<ops::CrossEntropyGradGrad>(test.op).weighted = true;
  }
  return test;
}

Case cross_entropy_grad_grad_case(const Shape& logits, DType dtype) {
  Case test{ops::CrossEntropyGradGrad{}, {{{dtype, logits}}}};
  const Case first = cross_entropy_grad_case(logits, dtype);
  test.inputs.insert(test.inputs.end(), first.inputs.begin(), first.inputs.end());
  std::get<Made>(test.inputs[3].source).operands = {1, 2};
  return test;
}

Case loss_weights_case(std::int64_t rows, double factor) {
  return {ops::LossWeights{.rows = rows, .factor = factor}, {scalars_input(mid_run())}};
}

Case head_loss_case(const ops::HeadLoss& op, const Shape& x, std::int64_t vocabulary, DType dtype) {
  const Reals small{.deviation = 0.5};
  Case test{op, {{{dtype, x}, small}, {{dtype, Shape{vocabulary, x[-1]}}, small}}, {0, 1}, {0}};
  if (op.bias) {
    test.inputs.push_back({{dtype, Shape{vocabulary}}});
    test.gradient_inputs.push_back(2);
  }
  test.inputs.insert(test.inputs.end(), {targets_input(without_last(x), vocabulary), scalars_input(mid_run())});
  return test;
}

Case scalars_case(const ops::Op& op, const ops::StepScalars& scalars) { return {op, {scalars_input(scalars)}}; }

Case sum_case(const ops::Op& op, const Shape& x, DType dtype) { return {op, {scalars_input(mid_run()), {{dtype, x}}}}; }

// Lower halves in the middle, where rounding to the upper one turns, with both signs of the average of squares.
Case update_case(const ops::Update& op, const Shape& weight, DType gradient, DType copy, const ops::StepScalars& scalars,
                 const StateForms& forms) {
  Case test{op, {scalars_input(scalars), {{gradient, weight}}, {{op.split ? DType::bf16 : forms.weight, weight}}}};
  for (const ops::RuleState& state : op.rule->states)
    test.inputs.push_back({{forms.moments, weight}, Reals{.positive = state.never_negative && !op.split}});
  if (op.split) test.inputs.push_back({{DType::u16, weight}, Integers{0x7FFE, 0x8003}});
  if (op.prelude) {
    ops::Update plain = op;
    plain.copy = plain.leaves = plain.prelude = false;
    plain.sends = {};
    Made made{.op = ops::UpdatePrelude{.update = plain}, .operands = {}};
    for (std::size_t operand = 0; operand < test.inputs.size(); ++operand) made.operands.push_back(operand);
    test.inputs.push_back({ops::prelude_type(*op.rule, weight), made});
  }
  if (op.copy) test.inputs.push_back({{copy, weight}});
  return test;
}

Case prelude_case(const ops::UpdatePrelude& op, const Shape& weight, DType gradient, const StateForms& forms) {
  Case test = update_case(op.update, weight, gradient, DType::bf16, mid_run(), forms);
  test.op = op;
  if (!op.into) return test;
  ops::ParameterSums before;
  for (base::ExactSum& sum : before.sum) sum.add(0.125f);
  test.inputs.push_back({ops::parameter_sums_type(), before});
  return test;
}

Case merge_sums_case(std::int64_t members) {
  const std::int64_t bytes = members * ops::parameter_sums_type().bytes();
  return {ops::MergeSums{.members = members}, {{{DType::u8, Shape{bytes}}, Integers{0, 2}}}};
}

Case orthogonalize_case(const ops::Orthogonalize& op, const Shape& x) { return {op, {{{DType::f32, x}}}}; }

Case put_part_case(const ops::PutPart& op, Shape part, DType dtype) {
  part.set(op.part.dim, op.part.count + op.part.tail);
  Case test{op, {{{dtype, part}}}};
  part.set(op.part.dim, op.part.extent);
  if (op.into) test.inputs.push_back({{dtype, part}});
  return test;
}

Case take_part_case(const ops::TakePart& op, Shape whole, DType dtype) {
  whole.set(op.part.dim, op.part.extent);
  return {op, {{{dtype, whole}}}};
}

}  // namespace plimsoll::op_cases
