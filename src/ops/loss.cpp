// Cross-entropy, alone and fused with the head. The gradient's scale (loss scale over valid targets) is known before
// the step, so the fused form gives losses and gradients in one pass and its adjoint only hands them on.
#include <algorithm>

#include "base/error.h"
#include "ops/families.h"
#include "ops/step_scalars.h"

namespace plimsoll::ops {

namespace {

constexpr int kSoftmaxFlops = 12;

bool are_targets(const TensorType& targets, std::int64_t rows) { return targets.dtype == DType::i32 && targets.shape.elements() == rows; }

TensorType per_row(const TensorType& logits) { return {DType::f32, Shape{logits.shape.rows()}}; }

std::vector<TensorType> infer_cross_entropy(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && are_targets(inputs[1], inputs[0].shape.rows()), op, inputs, "logits (.., V) and one i32 target per row");
  return {per_row(inputs[0]), per_row(inputs[0])};
}

Work cross_entropy_work(const Op&, Types inputs, Types outputs) {
  return {kSoftmaxFlops * static_cast<double>(inputs[0].shape.elements()), bytes_of(inputs, outputs)};
}

// What a row's gradient is multiplied by: as the step scalars say, or a weight of its own.
TensorType row_factors(const TensorType& logits, bool weighted) { return weighted ? per_row(logits) : step_scalars_type(); }

std::vector<ValueId> cross_entropy_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  expect_no_gradient(site, 1, "the log-sum-exp of the logits");
  const bool weighted = site.output_grads[0].valid();
  const ValueId factors = weighted ? site.output_grads[0] : build.scalars();
  return {build.emit(CrossEntropyGrad{.weighted = weighted}, {site.inputs[0], site.inputs[1], site.outputs[1], factors})[0], ValueId{}};
}

std::vector<TensorType> infer_cross_entropy_grad(const Op& op, Types inputs) {
  const bool weighted = std::get<CrossEntropyGrad>(op).weighted;
  expect(inputs.size() == 4 && are_targets(inputs[1], inputs[0].shape.rows()) && inputs[2] == per_row(inputs[0]) &&
             inputs[3] == row_factors(inputs[0], weighted),
         op, inputs, weighted ? "logits, targets, lse, weights (rows)" : "logits, targets, lse, scalars");
  return {inputs[0]};
}

std::vector<ValueId> cross_entropy_grad_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const bool weighted = std::get<CrossEntropyGrad>(site.op).weighted;
  std::vector<ValueId> operands{site.output_grads[0]};
  operands.insert(operands.end(), site.inputs.begin(), site.inputs.end());
  const std::vector<ValueId> made = build.emit(CrossEntropyGradGrad{.weighted = weighted}, operands);
  return {made[0], ValueId{}, ValueId{}, weighted ? made[1] : ValueId{}};
}

std::vector<TensorType> infer_cross_entropy_grad_grad(const Op& op, Types inputs) {
  const bool weighted = std::get<CrossEntropyGradGrad>(op).weighted;
  expect(inputs.size() == 5 && inputs[0] == inputs[1] && are_targets(inputs[2], inputs[1].shape.rows()) &&
             inputs[3] == per_row(inputs[1]) && inputs[4] == row_factors(inputs[1], weighted),
         op, inputs, "a gradient of dlogits, logits, targets, lse, scalars or weights (rows)");
  if (weighted) return {inputs[1], inputs[4]};
  return {inputs[1]};
}

std::vector<TensorType> infer_loss_weights(const Op& op, Types inputs) {
  const std::int64_t rows = std::get<LossWeights>(op).rows;
  expect(inputs.size() == 1 && inputs[0] == step_scalars_type() && rows > 0, op, inputs, "scalars, for one row or more");
  return {{DType::f32, Shape{rows}}};
}

std::size_t plain_inputs(const HeadLoss& head) { return head.bias ? 5 : 4; }

std::vector<TensorType> infer_head_loss(const Op& op, Types inputs) {
  const auto& head = std::get<HeadLoss>(op);
  const std::size_t plain = plain_inputs(head);
  expect(inputs.size() >= plain && inputs[1].shape.rank() == 2 && inputs[0].shape[-1] == inputs[1].shape[1], op, inputs,
         "x (.., C), weight (V, C), [bias], targets, scalars");
  expect(are_targets(inputs[plain - 2], inputs[0].shape.rows()) && inputs[plain - 1] == step_scalars_type(), op, inputs,
         "one i32 target per row, then scalars");
  if (head.bias) expect(inputs[2].shape == Shape{inputs[1].shape[0]}, op, inputs, "a bias of V elements");
  std::vector<TensorType> result{{DType::f32, Shape{inputs[0].shape.rows()}}};
  if (head.gradients) {
    result.push_back(inputs[0]);
    result.push_back({head.dtype, inputs[1].shape});
    if (head.bias) result.push_back({head.dtype, inputs[2].shape});
  }
  expect_accumulators(op, inputs, plain, head.accumulate ? Types(result).subspan(2) : Types{});
  return result;
}

Work head_loss_work(const Op& op, Types inputs, Types outputs) {
  const double gemms = std::get<HeadLoss>(op).gradients ? 3.0 : 1.0;
  const double logits = static_cast<double>(inputs[0].shape.rows()) * static_cast<double>(inputs[1].shape[0]);
  return {logits * (gemms * 2.0 * static_cast<double>(inputs[1].shape[1]) + kSoftmaxFlops), bytes_of(inputs, outputs)};
}

std::vector<ValueId> head_loss_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  const auto& head = std::get<HeadLoss>(site.op);
  const bool arrived = std::any_of(site.output_grads.begin(), site.output_grads.end(), [](ValueId grad) { return grad.valid(); });
  if (arrived || !head.gradients) {
    base::not_legal(
        "[head_loss] makes its gradients with the losses, for what losses count in a step and for no second derivative; leave the head "
        "unfused (fused_head = false) to weigh its losses or to differentiate again");
  }
  std::vector<ValueId> grads(site.inputs.size());
  grads[0] = site.outputs[1];
  if (build.wants_grad(site.inputs[1])) grads[1] = site.outputs[2];
  if (head.bias && build.wants_grad(site.inputs[2])) grads[2] = site.outputs[3];
  return grads;
}

std::vector<TensorType> infer_cross_entropy_part(const Op& op, Types inputs) {
  expect(inputs.size() == 2 && are_targets(inputs[1], inputs[0].shape.rows()), op, inputs, "logits (.., V) and one i32 target per row");
  return {{DType::f32, Shape{inputs[0].shape.rows() * 2}}};
}

std::vector<TensorType> infer_cross_entropy_merge(const Op& op, Types inputs) {
  const std::int64_t members = std::get<CrossEntropyMerge>(op).members;
  expect(inputs.size() == 2 && members > 0 && inputs[0].dtype == DType::f32 &&
             inputs[0].shape.elements() == members * 2 * inputs[1].shape.elements(),
         op, inputs, "everybody's two numbers per row, and targets");
  const TensorType each{DType::f32, Shape{inputs[1].shape.elements()}};
  return {each, each};
}

PlacedOp place_cross_entropy_grad(const PlacementQuery& query) {
  PlacedOp placed = place_whole(query, 1);
  if (!last_is_split(query, 0)) return placed;
  placed.inputs[0] = placed.outputs[0] = query.inputs[0];
  placed.ids_of = {0, query.inputs[0].units, 0, 0};
  return placed;
}

// The logits, and of them the gradients of both operands.
std::vector<Product> head_products(const Op& op, Types inputs, Types) {
  const std::int64_t rows = inputs[0].shape.rows();
  const std::int64_t vocab = inputs[1].shape[0];
  const std::int64_t width = inputs[1].shape[1];
  std::vector<Product> products{{.rows = rows, .columns = vocab, .depth = width, .right_transposed = true}};
  if (std::get<HeadLoss>(op).gradients) {
    products.push_back({.rows = rows, .columns = width, .depth = vocab});
    products.push_back({.rows = vocab, .columns = width, .depth = rows, .left_transposed = true});
  }
  return products;
}

}  // namespace

Definition define(const CrossEntropy&) {
  return {.infer = infer_cross_entropy,
          .work = cross_entropy_work,
          .adjoint = cross_entropy_adjoint,
          .counts_itself = true,
          .live_rows = by_rows<2>};
}

Definition define(const CrossEntropyGrad&) {
  return {.infer = infer_cross_entropy_grad,
          .work = elementwise_work<kSoftmaxFlops>,
          .adjoint = cross_entropy_grad_adjoint,
          .aliases = may_overwrite_first,
          .place = place_cross_entropy_grad,
          .live_rows = by_rows<1>};
}

Definition define(const CrossEntropyGradGrad&) {
  return {.infer = infer_cross_entropy_grad_grad, .work = elementwise_work<kSoftmaxFlops>, .no_adjoint = kNoThird};
}

Definition define(const LossWeights&) {
  return {.infer = infer_loss_weights,
          .work = [](const Op&, Types, Types outputs) { return Work{0.0, static_cast<double>(outputs[0].bytes())}; },
          .no_adjoint = kOfScalars};
}

Definition define(const CrossEntropyPart&) {
  return {.infer = infer_cross_entropy_part, .work = cross_entropy_work, .no_adjoint = kMadeByLowering};
}

Definition define(const CrossEntropyMerge&) {
  return {.infer = infer_cross_entropy_merge, .work = cross_entropy_work, .no_adjoint = kMadeByLowering};
}

Definition define(const HeadLoss&) {
  return {
      .infer = infer_head_loss,
      .work = head_loss_work,
      .adjoint = head_loss_adjoint,
      .aliases =
          [](const Op& op) {
            const auto& head = std::get<HeadLoss>(op);
            return accumulator_aliases(head.accumulate, 2, head.bias ? 2 : 1, static_cast<int>(plain_inputs(head)));
          },
      .accumulating = [](const Op& op) { return std::get<HeadLoss>(op).gradients ? accumulate_by_attribute<HeadLoss>(op) : std::nullopt; },
      .accumulated_outputs =
          [](const Op& op) {
            const auto& head = std::get<HeadLoss>(op);
            if (!head.gradients) return std::vector<int>{};
            return head.bias ? std::vector<int>{2, 3} : std::vector<int>{2};
          },
      .products = head_products,
      .chunks_product = true,
      .counts_itself = true,
      .live_rows = [](const Op& op) { return std::optional(std::get<HeadLoss>(op).gradients ? 2 : 1); }};
}

}  // namespace plimsoll::ops
