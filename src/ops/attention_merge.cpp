// Attention over two sets of keys, put together from that over each. With w_x = exp(lse_x - lse), out = w_a out_a + w_b out_b:
//   dout_x = w_x dout,   dlse_a = w_a (dlse + w_b dout.(out_a - out_b)),   and the same for b
#include "base/error.h"
#include "ops/families.h"

namespace plimsoll::ops {

namespace {

// (out (B, T, H*D), lse (B, H, T)) from operand `first` on.
bool is_attended(Types inputs, std::size_t first) {
  const Shape& out = inputs[first].shape;
  const TensorType& lse = inputs[first + 1];
  return out.rank() == 3 && lse.dtype == DType::f32 && lse.shape.rank() == 3 && lse.shape[0] == out[0] && lse.shape[2] == out[1] &&
         out[2] % lse.shape[1] == 0;
}

bool are_parts(Types inputs, std::size_t first) {
  return inputs.size() == first + 4 && is_attended(inputs, first) && is_attended(inputs, first + 2) &&
         inputs[first].shape == inputs[first + 2].shape && inputs[first + 1] == inputs[first + 3];
}

std::vector<TensorType> infer_merge(const Op& op, Types inputs) {
  expect(are_parts(inputs, 0), op, inputs, "out_a (B, T, H*D), lse_a (B, H, T), out_b, lse_b");
  return {inputs[0], inputs[1]};
}

std::vector<TensorType> infer_merge_grad(const Op& op, Types inputs) {
  const std::size_t first = std::get<MergeAttentionGrad>(op).of_lse ? 2 : 1;
  expect(are_parts(inputs, first) && inputs[0].shape == inputs[first].shape && (first == 1 || inputs[1] == inputs[first + 1]), op, inputs,
         "dout, [dlse], out_a, lse_a, out_b, lse_b");
  return {inputs[first], inputs[first + 1], inputs[first + 2], inputs[first + 3]};
}

std::vector<ValueId> merge_adjoint(const AdjointSite& site, AdjointBuilder& build) {
  if (!site.output_grads[0].valid())
    base::not_legal("[merge_attention] a gradient arrived at the log-sum-exp alone; expected one at what attention gives too");
  MergeAttentionGrad grad{.of_lse = site.output_grads[1].valid()};
  std::vector<ValueId> operands{site.output_grads[0]};
  if (grad.of_lse) operands.push_back(site.output_grads[1]);
  operands.insert(operands.end(), site.inputs.begin(), site.inputs.end());
  return build.emit(grad, operands);
}

}  // namespace

Definition define(const MergeAttention&) {
  return {.infer = infer_merge, .work = elementwise_work<3>, .adjoint = merge_adjoint, .aliases = [](const Op&) {
            return std::vector<Alias>{{.output = 0, .input = 0}, {.output = 1, .input = 1}};
          }};
}

Definition define(const MergeAttentionGrad&) {
  return {.infer = infer_merge_grad,
          .work = elementwise_work<5>,
          .no_adjoint = "second derivatives are written for attention over packed heads, which needs no merging"};
}

}  // namespace plimsoll::ops
