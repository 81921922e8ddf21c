// The operators of a training step of GPT-2 124M on 4 x 256 tokens, and those of the other families at like sizes.
#include "ops/build_cases.h"

namespace plimsoll::op_cases {

namespace {

constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kLength = 256;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kInner = 3072;
constexpr std::int64_t kVocabulary = 50257;
constexpr ops::Heads kHeads{12, 12, 64};
constexpr ops::Heads kGrouped{12, 4, 64};
constexpr std::int64_t kBlockParameters = 12 * kWidth * kWidth;  // of one transformer block
constexpr double kRate = 0.1;
constexpr std::uint64_t kSite = 1;

Shape tokens(std::int64_t width) { return Shape{kBatch, kLength, width}; }

void add_products(std::vector<Case>& cases, DType dtype) {
  const ops::Linear gelu{.bias = true, .activation = ops::ActivationKind::gelu_tanh};
  cases.push_back(linear_case({.bias = true}, tokens(kWidth), 3 * kWidth, dtype));
  cases.push_back(linear_case({.bias = true}, tokens(kWidth), kWidth, dtype));
  cases.push_back(linear_case(gelu, tokens(kWidth), kInner, dtype));
  cases.push_back(linear_case({.bias = true}, tokens(kInner), kWidth, dtype));
  cases.push_back(linear_grad_input_case(tokens(kInner), kWidth, dtype));
  cases.push_back(linear_grad_input_case(tokens(kWidth), kInner, dtype));
  cases.push_back(linear_grad_weight_case(tokens(kInner), kWidth, dtype, DType::f32));
  cases.push_back(linear_grad_weight_case(tokens(kWidth), kInner, dtype, DType::f32));
  cases.push_back(bias_grad_case(tokens(kInner), dtype, DType::f32));
  cases.push_back(head_loss_case({}, tokens(kWidth), kVocabulary, dtype));
  cases.push_back(head_loss_case({.gradients = true}, tokens(kWidth), kVocabulary, dtype));
  cases.push_back(cross_entropy_case(Shape{128, kVocabulary}, dtype));
  cases.push_back(cross_entropy_grad_case(Shape{128, kVocabulary}, dtype));
}

void add_attention(std::vector<Case>& cases, DType dtype) {
  for (const ops::Attention& form : {ops::Attention{.heads = kHeads}, ops::Attention{.heads = kHeads, .causal = false},
                                     ops::Attention{.heads = kHeads, .rate = kRate}, ops::Attention{.heads = kGrouped}}) {
    cases.push_back(attention_case(form, kBatch, kLength, dtype));
    cases.push_back(attention_grad_case(form, kBatch, kLength, dtype));
  }
  cases.push_back(attention_case({.heads = kHeads}, 1, 1024, dtype));
  cases.push_back(attention_grad_case({.heads = kHeads}, 1, 1024, dtype));
}

void add_rows(std::vector<Case>& cases, DType dtype) {
  const ops::NormKind layer = ops::NormKind::layer;
  const ops::NormKind rms = ops::NormKind::rms;
  cases.push_back(norm_case({.kind = layer, .bias = true}, tokens(kWidth), dtype));
  cases.push_back(norm_case({.kind = layer, .bias = true, .residual = true}, tokens(kWidth), dtype));
  cases.push_back(norm_case({.kind = layer, .bias = true, .residual = true, .rate = kRate, .site = kSite}, tokens(kWidth), dtype));
  cases.push_back(norm_case({.kind = rms, .residual = true}, tokens(kWidth), dtype));
  cases.push_back(norm_grad_case({.kind = layer, .bias = true, .has_dsum = true}, tokens(kWidth), dtype));
  cases.push_back(norm_grad_case({.kind = rms, .has_dsum = true}, tokens(kWidth), dtype));
  cases.push_back(qk_norm_case({.heads = kGrouped}, kBatch, kLength, dtype));
  cases.push_back(qk_norm_grad_case({.heads = kGrouped}, kBatch, kLength, dtype));
  cases.push_back(rope_case({.heads = kGrouped}, kBatch, kLength, dtype));
  for (const ops::ActivationKind kind : {ops::ActivationKind::gelu_tanh, ops::ActivationKind::gelu_erf}) {
    cases.push_back(activation_case(kind, tokens(kInner), dtype));
    cases.push_back(activation_grad_case(kind, tokens(kInner), dtype));
  }
  cases.push_back(gate_case(ops::ActivationKind::silu, tokens(2 * kInner), dtype));
  cases.push_back(gate_grad_case(ops::ActivationKind::silu, tokens(2 * kInner), dtype));
  cases.push_back(add_case(tokens(kWidth), dtype));
  cases.push_back(dropout_case(kRate, tokens(kWidth), dtype));
  cases.push_back(residual_case(kRate, tokens(kWidth), dtype));
  cases.push_back(embed_case(Shape{kBatch, kLength}, {kVocabulary, 1024}, kWidth, dtype));
  cases.push_back(embed_grad_case(Shape{kBatch, kLength}, kVocabulary, kWidth, dtype, DType::f32));
}

void add_updates(std::vector<Case>& cases, DType dtype) {
  const Shape block{kBlockParameters};
  const bool copy = dtype != DType::f32;
  if (copy) cases.push_back(cast_case(block, DType::f32, dtype));
  cases.push_back(sum_case(ops::SquaredNorm{}, block, dtype));
  cases.push_back(update_case(tests::AdamUpdate{.weight_decay = 0.1, .copy = copy}, block, dtype, dtype, mid_run()));
  cases.push_back(update_case(tests::SgdUpdate{.momentum = 0.9, .copy = copy}, block, dtype, dtype, mid_run()));
  if (dtype != DType::bf16) return;
  cases.push_back(update_case(tests::AdamUpdate{.weight_decay = 0.1, .split = true}, block, dtype, dtype, mid_run()));
  cases.push_back(update_case(tests::AdamUpdate{.weight_decay = 0.1}, block, dtype, dtype, mid_run(), {.weight = dtype, .moments = dtype}));
}

}  // namespace

std::vector<Case> speed_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const auto family : {add_products, add_attention, add_rows, add_updates}) family(cases, dtype);
  }
  return cases;
}

}  // namespace plimsoll::op_cases
