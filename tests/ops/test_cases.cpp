// What correctness is checked on: every attribute, every element type that trains, extents of 1, odd ones, ones around
// the sizes at which kernels cut their work, and some at random.
#include <initializer_list>

#include "ops/case_lists.h"

namespace plimsoll::op_cases {

namespace {

using ops::ActivationKind;
using ops::NormKind;

constexpr std::initializer_list<ActivationKind> kActivations{ActivationKind::gelu_tanh, ActivationKind::gelu_erf, ActivationKind::relu,
                                                             ActivationKind::silu};
constexpr std::uint64_t kSite = 0xABCDEF01234567ull;

// Activations (B, T, C).
std::vector<Shape> activation_shapes(std::string_view what, std::int64_t least_width = 1) {
  Pick pick(what);
  return {Shape{1, 1, least_width},
          Shape{2, 3, 5},
          Shape{3, 2, 64},
          Shape{2, 3, 1030},
          Shape{pick(1, 4), pick(1, 9), pick(least_width, 40)},
          Shape{pick(1, 4), pick(5, 30), pick(40, 400)}};
}

void add_embedding(std::vector<Case>& cases) {
  for (const DType dtype : kTypes) {
    cases.push_back(embed_case(Shape{1, 1}, {1}, 1, dtype));
    cases.push_back(embed_case(Shape{2, 7}, {11, 7}, 12, dtype));
    cases.push_back(embed_case(Shape{3, 5}, {100, 5, 2}, 131, dtype));
    cases.push_back(embed_grad_case(Shape{1, 1}, 1, 1, dtype, DType::f32));
    cases.push_back(embed_grad_case(Shape{2, 7}, 5, 12, dtype, DType::f32));
    cases.push_back(embed_grad_case(Shape{3, 41}, 100, 131, dtype, dtype));
  }
  for (const std::int64_t first : {0, 7}) {
    for (const std::int64_t hidden : {-1, 8}) cases.push_back(shift_ids_case(Shape{3, 17}, {.first = first, .rows = 5, .hidden = hidden}));
  }
  for (const DType dtype : kTypes) cases.push_back(cross_entropy_part_case(Shape{2, 5, 37}, dtype));
  for (const std::int64_t members : {1, 2, 5}) cases.push_back(cross_entropy_merge_case(members, 13));
}

// Mixed precision keeps vectors in f32.
Case with_f32_bias(Case test) {
  test.inputs[2].type.dtype = DType::f32;
  return test;
}

void add_linear(std::vector<Case>& cases) {
  Pick pick("linear");
  struct Size {
    Shape x;
    std::int64_t outputs;
  };
  const std::vector<Size> sizes{{Shape{1, 1}, 1},
                                {Shape{2, 3, 5}, 7},
                                {Shape{2, 17, 33}, 65},
                                {Shape{2, 24, 64}, 96},
                                {Shape{pick(1, 3), pick(1, 40), pick(1, 90)}, pick(1, 130)},
                                {Shape{pick(60, 140), pick(100, 200)}, pick(100, 200)}};
  for (const DType dtype : kTypes) {
    for (const Size& size : sizes) {
      const Shape dy = linear_case({}, size.x, size.outputs, dtype).output_types()[0].shape;
      for (const bool bias : {false, true}) {
        cases.push_back(linear_case({.bias = bias}, size.x, size.outputs, dtype));
      }
      cases.push_back(linear_grad_input_case(dy, size.x[-1], dtype));
      cases.push_back(linear_grad_weight_case(dy, size.x[-1], dtype, DType::f32));
      cases.push_back(bias_grad_case(dy, dtype, DType::f32));
      if (dtype != DType::f32) cases.push_back(linear_grad_weight_case(dy, size.x[-1], dtype, dtype));
      if (dtype != DType::f32) cases.push_back(bias_grad_case(dy, dtype, dtype));
      cases.push_back(repeat_rows_case(dy, dtype, DType::f32));
      if (dtype != DType::f32) cases.push_back(repeat_rows_case(dy, dtype, dtype));
    }
    for (const ActivationKind kind : kActivations) {
      cases.push_back(linear_case({.bias = true, .activation = kind}, Shape{2, 5, 7}, 13, dtype));
      cases.push_back(linear_case({.bias = kind == ActivationKind::relu, .activation = kind}, Shape{3, 19, 37}, 67, dtype));
      cases.push_back(linear_case({.bias = kind != ActivationKind::silu, .activation = kind}, Shape{2, 8, 32}, 48, dtype));
      if (dtype != DType::f32) cases.push_back(with_f32_bias(linear_case({.bias = true, .activation = kind}, Shape{2, 8, 32}, 48, dtype)));
    }
    for (const ActivationKind kind : kActivations) {
      cases.push_back(linear_grad_input_case(Shape{2, 5, 7}, 13, dtype, kind));
      cases.push_back(linear_grad_input_case(Shape{2, 8, 32}, 48, dtype, kind));
      cases.push_back(linear_grad_input_case(Shape{70, 136}, 200, dtype, kind));
    }
    cases.push_back(bias_grad_case(Shape{2, 301, 33}, dtype, DType::f32));
    if (dtype != DType::f32) cases.push_back(with_f32_bias(linear_case({.bias = true}, Shape{2, 5, 7}, 13, dtype)));
  }
}

void add_quantized(std::vector<Case>& cases) {
  for (const DType to : {DType::f8e4m3, DType::f8e5m2}) {
    for (const DType dtype : kTypes) {
      for (const Shape& x : {Shape{16, 16}, Shape{2, 24, 64}, Shape{144, 272}, Shape{272, 144}}) {
        cases.push_back(quantize_case({.dtype = to}, x, dtype, 1e-3));
        cases.push_back(quantize_case({.dtype = to, .history = 3}, x, dtype, 1.0));
      }
      for (const ActivationKind kind : kActivations) {
        cases.push_back(quantize_case({.dtype = to, .activation = kind}, Shape{64, 48}, dtype, 2.0));
        cases.push_back(
            quantize_case({.dtype = to, .activation = kind, .slopes = true, .history = 2, .sums = true}, Shape{208, 80}, dtype, 2.0));
      }
      cases.push_back(quantize_case({.dtype = to, .sums = true, .sums_dtype = dtype}, Shape{2, 80, 144}, dtype, 1.0));
    }
    for (const Shape& a : {Shape{16, 16}, Shape{2, 24, 64}, Shape{144, 272}}) {
      cases.push_back(scaled_linear_case({}, a, 48, to));
      cases.push_back(scaled_linear_case({.bias = true}, a, 48, to));
      cases.push_back(scaled_linear_case({.dtype = DType::f32}, a, 160, to));
    }
  }
  cases.push_back(note_amax_case(1, 1));
  cases.push_back(note_amax_case(16, 6));
}

void add_forms(std::vector<Case>& cases) {
  for (const ops::FormInfo& form : ops::forms()) {
    for (const DType dtype : kTypes) {
      for (const Shape& shape : {Shape{1}, Shape{64}, Shape{2, 3, 65}, Shape{5, 192}, Shape{3, 1100}, Shape{130, 128}}) {
        cases.push_back(encode_case(form, shape, dtype, shape.rank() == 2 ? 1e-3 : 1.0));
        cases.push_back(decode_case(form, shape, dtype));
      }
    }
  }
}

void add_stateful(std::vector<Case>& cases) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : activation_shapes("stateful")) {
      cases.push_back(running_mean_case(0.1, shape, dtype));
      for (const DType to : {DType::bf16, DType::f16}) cases.push_back(round_with_error_case(to, shape, dtype));
    }
    for (const double momentum : {0.0, 1.0}) cases.push_back(running_mean_case(momentum, Shape{5, 3}, dtype));
  }
}

void add_feedback(std::vector<Case>& cases) {
  ops::StepScalars scalars = mid_run();
  scalars.loss_scale = 256.0f;
  for (const DType dtype : kTypes) {
    cases.push_back(add_error_case(Shape{2, 1500}, 2900, dtype, scalars));
    cases.push_back(add_error_case(Shape{7}, 7, dtype, scalars));
    cases.push_back(sum_parts_case({.members = 3, .dtype = dtype}, Shape{3, 1100}, dtype));
    if (dtype != DType::f32) cases.push_back(sum_parts_case({.members = 3, .dtype = DType::f32}, Shape{3, 1100}, dtype));
  }
  cases.push_back(keep_error_case(Shape{2, 1500}, 2900, scalars));
  for (const std::int32_t skip : {0, 1}) {
    scalars.skip = skip;
    cases.push_back(undo_skipped_case(Shape{1300}, scalars));
  }
}

void add_elementwise(std::vector<Case>& cases) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : activation_shapes("elementwise")) {
      cases.push_back(add_case(shape, dtype));
      cases.push_back(accumulate_case(shape, dtype));
      cases.push_back(pad_case(shape.elements() + 5, shape.elements(), dtype));
      cases.push_back(take_columns_case({.first = shape[-1] / 3, .count = shape[-1] - shape[-1] / 3}, shape, dtype));
      cases.push_back(put_columns_case({.first = 0, .columns = shape[-1]}, shape, dtype));
      cases.push_back(put_columns_case({.first = 7, .columns = shape[-1] + 9, .into = true}, shape, dtype));
      for (const DType to : kTypes) cases.push_back(cast_case(shape, dtype, to));
      Shape doubled = shape;
      doubled.set(-1, 2 * shape[-1]);
      for (const ActivationKind kind : kActivations) {
        cases.push_back(activation_case(kind, shape, dtype));
        cases.push_back(activation_grad_case(kind, shape, dtype));
        cases.push_back(activation_grad_grad_case(kind, shape, dtype));
        cases.push_back(gate_case(kind, doubled, dtype));
        cases.push_back(gate_grad_case(kind, doubled, dtype));
        cases.push_back(gate_grad_grad_case(kind, doubled, dtype));
      }
    }
  }
}

// Rows 5 to 13 of a micro-batch of three samples with seven rows each: what one of several ranks has.
template <typename Attributes>
Case with_some_rows(Case test) {
  auto op = std::get<Attributes>(test.op);
  op.first_row = 5;
  op.sample_rows = 7;
  test.op = op;
  test.inputs[test.inputs.size() - 2].type.shape = Shape{3};
  return test;
}
const Shape kSomeRows{9, 37};

void add_dropout(std::vector<Case>& cases) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : activation_shapes("dropout")) {
      cases.push_back(dropout_case(kRate, shape, dtype));
      cases.push_back(residual_case(0.0, shape, dtype));
      cases.push_back(residual_case(kRate, shape, dtype));
      cases.push_back(subtract_case(0.0, shape, dtype));
      cases.push_back(subtract_case(kRate, shape, dtype));
    }
    cases.push_back(dropout_case(0.5, Shape{5, 3}, dtype));
    cases.push_back(with_some_rows<ops::Dropout>(dropout_case(kRate, kSomeRows, dtype)));
    cases.push_back(with_some_rows<ops::Residual>(residual_case(kRate, kSomeRows, dtype)));
    cases.push_back(with_some_rows<ops::Subtract>(subtract_case(kRate, kSomeRows, dtype)));
  }
}

// Of two numbers or one, what normalisation leaves does not depend on them: gradients are nothing but rounding.
constexpr std::int64_t kLeastNorm = 3;

void add_norm(std::vector<Case>& cases) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : activation_shapes("norm", kLeastNorm)) {
      for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        const bool bias = kind == NormKind::layer;
        cases.push_back(norm_case({.kind = kind, .bias = bias}, shape, dtype));
        cases.push_back(norm_case({.kind = kind, .eps = 1e-6, .bias = !bias, .residual = true}, shape, dtype));
        cases.push_back(norm_case({.kind = kind, .bias = bias, .residual = true, .rate = kRate, .site = kSite}, shape, dtype));
        cases.push_back(norm_grad_case({.kind = kind, .bias = bias}, shape, dtype));
        cases.push_back(norm_grad_case({.kind = kind, .bias = !bias, .has_dsum = true, .dtype = dtype}, shape, dtype));
        cases.push_back(norm_grad_grad_case({.kind = kind, .input = true}, shape, dtype));
        cases.push_back(norm_grad_grad_case({.kind = kind, .weight = true}, shape, dtype));
        cases.push_back(norm_grad_grad_case({.kind = kind, .input = true, .weight = true}, shape, dtype));
      }
    }
    cases.push_back(with_some_rows<ops::Norm>(norm_case({.bias = true, .residual = true, .rate = kRate, .site = kSite}, kSomeRows, dtype)));
    for (const ops::Heads& heads : {ops::Heads{1, 1, kLeastNorm}, ops::Heads{3, 3, 9}, ops::Heads{4, 2, 16}, ops::Heads{6, 1, 34}}) {
      cases.push_back(qk_norm_case({.heads = heads}, 2, 7, dtype));
      cases.push_back(qk_norm_grad_case({.heads = heads, .dtype = heads.kv == 1 ? dtype : DType::f32}, 2, 7, dtype));
      cases.push_back(qk_norm_grad_grad_case({.heads = heads, .input = true, .query = true, .key = true}, 2, 7, dtype));
      cases.push_back(qk_norm_grad_grad_case({.heads = heads, .input = heads.kv == 1, .key = true}, 2, 7, dtype));
    }
  }
}

void add_rope(std::vector<Case>& cases) {
  for (const DType dtype : kTypes) {
    for (const ops::Heads& heads : {ops::Heads{1, 1, 2}, ops::Heads{2, 2, 6}, ops::Heads{4, 2, 64}, ops::Heads{5, 1, 30}}) {
      for (const bool inverse : {false, true}) cases.push_back(rope_case({.heads = heads, .inverse = inverse}, 2, 9, dtype));
    }
  }
}

void add_loss(std::vector<Case>& cases) {
  Pick pick("loss");
  const std::vector<Shape> logits{Shape{1, 1}, Shape{2, 3, 5}, Shape{2, 7, 33}, Shape{pick(2, 9), pick(500, 1500)}};
  const std::vector<Shape> inputs{Shape{1, 1}, Shape{2, 3, 5}, Shape{2, 19, 33}, Shape{pick(20, 40), pick(20, 70)}};
  for (const DType dtype : kTypes) {
    for (const Shape& shape : logits) {
      cases.push_back(cross_entropy_case(shape, dtype));
      cases.push_back(cross_entropy_grad_case(shape, dtype));
      cases.push_back(weighted(cross_entropy_grad_case(shape, dtype)));
      cases.push_back(cross_entropy_grad_grad_case(shape, dtype));
      cases.push_back(weighted(cross_entropy_grad_grad_case(shape, dtype)));
    }
    for (std::size_t index = 0; index < inputs.size(); ++index) {
      for (const bool bias : {false, true}) {
        const std::int64_t vocabulary = logits[index][-1];
        cases.push_back(head_loss_case({.bias = bias}, inputs[index], vocabulary, dtype));
        cases.push_back(head_loss_case({.bias = bias, .gradients = true}, inputs[index], vocabulary, dtype));
      }
    }
    cases.push_back(head_loss_case({.bias = true, .gradients = true, .dtype = dtype}, Shape{2, 9, 12}, 50, dtype));
    if (dtype != DType::f32) cases.push_back(with_f32_bias(head_loss_case({.bias = true, .gradients = true}, Shape{2, 9, 24}, 50, dtype)));
    // Larger than any chunk of rows or of the vocabulary that a kernel would take at once.
    cases.push_back(head_loss_case({.gradients = true}, Shape{2, 150, 12}, 5003, dtype));
  }
}

void add_scalars(std::vector<Case>& cases) {
  const ops::StepScalars usual = mid_run();
  ops::StepScalars skipped = usual;
  skipped.skip = 1;
  ops::StepScalars unlucky = skipped;
  unlucky.hysteresis = 0;
  ops::StepScalars lowest = unlucky;
  lowest.loss_scale = 1.0f;
  ops::StepScalars overflown = usual;
  overflown.squared_norm.add(std::numeric_limits<float>::infinity());
  ops::StepScalars fresh;

  for (const ops::StepScalars& scalars : {usual, skipped, fresh}) cases.push_back(scalars_case(ops::BeginStep{}, scalars));
  for (const std::int64_t rows : {1, 37}) cases.push_back(loss_weights_case(rows, 0.3));
  for (const ops::PrepareUpdate& op : {ops::PrepareUpdate{}, ops::PrepareUpdate{.clip = 1.0}, ops::PrepareUpdate{.clip = 1e6},
                                       ops::PrepareUpdate{.clip = 1.0, .check_finite = true}}) {
    for (const ops::StepScalars& scalars : {usual, skipped, overflown, fresh}) cases.push_back(scalars_case(op, scalars));
  }
  for (const ops::FinishStep& op : {ops::FinishStep{}, ops::FinishStep{.dynamic = true}, ops::FinishStep{.dynamic = true, .window = 4},
                                    ops::FinishStep{.dynamic = true, .window = 1, .hysteresis = 1, .minimum = 16.0}}) {
    for (const ops::StepScalars& scalars : {usual, skipped, unlucky, lowest, fresh}) cases.push_back(scalars_case(op, scalars));
  }
  for (const bool norm : {false, true}) cases.push_back(merge_scalars_case({.members = 3, .norm = norm}));
  cases.push_back(merge_scalars_case({.members = 2, .norm = true, .add = true}));
  for (const std::int64_t bound : {40, 60}) {
    const Case plain = scalars_case(ops::CheckRows{.bound = bound}, usual);
    cases.push_back({plain.op, {plain.inputs[0], {{DType::i32, Shape{1}}, Integers{50, 51}}}});
  }
  cases.push_back({ops::FreshScalars{}, {}});
  for (const Shape& shape : {Shape{1}, Shape{1023}, Shape{1024}, Shape{5, 1000}, Shape{3, 33, 700}}) {
    cases.push_back(sum_case(ops::SumLoss{}, Shape{shape.elements()}, DType::f32));
    for (const DType dtype : kTypes) cases.push_back(sum_case(ops::SquaredNorm{}, shape, dtype));
  }
}

void add_optimizers(std::vector<Case>& cases) {
  const ops::StepScalars usual = mid_run();
  ops::StepScalars first = usual;
  first.updates = 0;
  ops::StepScalars skipped = usual;
  skipped.skip = 1;
  for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{1030}, Shape{13, 999}}) {
    for (const DType gradient : kTypes) {
      for (const ops::StepScalars& scalars : {usual, first, skipped}) {
        for (const StateForms& forms : {StateForms{.weight = DType::bf16}, StateForms{.moments = DType::bf16},
                                        StateForms{.weight = DType::bf16, .moments = DType::bf16}}) {
          const bool copy = shape.rank() == 2;
          cases.push_back(update_case(tests::AdamUpdate{.weight_decay = 0.1, .copy = copy}, shape, gradient, DType::bf16, scalars, forms));
          cases.push_back(update_case(tests::SgdUpdate{.momentum = 0.9, .copy = copy}, shape, gradient, DType::bf16, scalars, forms));
        }
        for (const bool copy : {false, true}) {
          const DType copied = gradient == DType::f32 ? DType::bf16 : gradient;
          for (const ops::UpdateRule& rule : ops::update_rules()) {
            ops::Update update = ops::Update::by(rule);
            update.weight_decay = 0.1;
            update.copy = copy;
            if (rule.prelude != ops::Prelude::matrix) cases.push_back(update_case(update, shape, gradient, copied, scalars));
            if (rule.prelude == ops::Prelude::none) continue;
            update.prelude = true;
            cases.push_back(update_case(update, shape, gradient, copied, scalars));
          }
          cases.push_back(update_case(tests::AdamUpdate{.weight_decay = 0.1, .copy = copy}, shape, gradient, copied, scalars));
          cases.push_back(update_case(
              tests::AdamUpdate{.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1, .decoupled = false, .copy = copy}, shape,
              gradient, copied, scalars));
          cases.push_back(update_case(tests::SgdUpdate{.weight_decay = 0.1, .copy = copy}, shape, gradient, copied, scalars));
          cases.push_back(
              update_case(tests::SgdUpdate{.momentum = 0.9, .weight_decay = 0.1, .copy = copy}, shape, gradient, copied, scalars));
          // What leaves the host.
          const std::optional<DType> sent = copy ? std::nullopt : std::optional(copied);
          cases.push_back(update_case(tests::AdamUpdate{.copy = copy, .leaves = copy, .sends = sent}, shape, gradient, copied, scalars));
        }
      }
    }
  }
}

void add_preludes(std::vector<Case>& cases) {
  for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{1030}, Shape{13, 999}}) {
    for (const ops::UpdateRule& rule : ops::update_rules()) {
      if (rule.prelude == ops::Prelude::none) continue;
      ops::UpdatePrelude prelude = ops::UpdatePrelude::by(rule);
      prelude.update.weight_decay = 0.1;
      for (const DType gradient : kTypes) cases.push_back(prelude_case(prelude, shape, gradient));
      for (const StateForms& forms : {StateForms{.weight = DType::bf16}, StateForms{.moments = DType::bf16}})
        cases.push_back(prelude_case(prelude, shape, DType::f32, forms));
      if (rule.prelude == ops::Prelude::matrix) continue;
      prelude.into = true;
      cases.push_back(prelude_case(prelude, shape, DType::f32));
      prelude.counted = shape.elements() / 2;
      cases.push_back(prelude_case(prelude, shape, DType::f32));
      if (!rule.has_signs()) continue;
      prelude.update.split = true;
      cases.push_back(prelude_case(prelude, shape, DType::f32));
    }
  }
  for (const std::int64_t members : {2, 3}) cases.push_back(merge_sums_case(members));
  for (const Shape& shape : {Shape{12, 7}, Shape{8, 40}, Shape{64, 16}}) {
    for (const double match_rms : {0.0, 0.2}) {
      cases.push_back(orthogonalize_case({.match_rms = match_rms}, shape));
      cases.push_back(orthogonalize_case({.steps = 2, .match_rms = match_rms, .parts = {2, 1, 1}}, shape));
    }
  }
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{5, 3}, Shape{4, 6, 2}}) {
      for (const bool into : {false, true}) {
        cases.push_back(put_part_case({.part = {.dim = 0, .extent = 9, .begin = 2, .count = 3}, .into = into}, shape, dtype));
        cases.push_back(put_part_case({.part = {.dim = 1, .extent = 8, .begin = 1, .count = 2, .tail_begin = 6, .tail = 1}, .into = into},
                                      shape, dtype));
      }
      cases.push_back(
          put_part_case({.part = {.dim = 0, .extent = 9, .count = 3, .tail_begin = 7, .tail = 2}, .without_tail = true}, shape, dtype));
      cases.push_back(take_part_case({.part = {.dim = 0, .extent = 9, .begin = 2, .count = 3}}, shape, dtype));
      cases.push_back(take_part_case({.part = {.dim = 1, .extent = 8, .begin = 1, .count = 2, .tail_begin = 6, .tail = 1}}, shape, dtype));
    }
  }
}

}  // namespace

std::vector<Case> test_cases() {
  std::vector<Case> cases;
  for (const auto family :
       {add_embedding, add_linear, add_quantized, add_forms, add_stateful, add_feedback, add_elementwise, add_dropout, add_norm, add_rope,
        add_attention, add_separate_attention, add_cached_attention, add_loss, add_scalars, add_optimizers, add_preludes}) {
    family(cases);
  }
  const std::size_t plain = cases.size();
  for (std::size_t index = 0; index < plain; ++index) {
    const ops::Definition& definition = ops::definition_of(cases[index].op);
    if (definition.accumulating == nullptr) continue;
    if (const std::optional<ops::Op> form = definition.accumulating(cases[index].op)) {
      cases.push_back(accumulating_case(Case(cases[index]), *form));
    }
  }
  return cases;
}

}  // namespace plimsoll::op_cases
