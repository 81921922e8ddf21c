// Cross-entropy of one f32 row of logits.
#pragma once

#include <cstdint>

namespace plimsoll::kernels::cpu {

// log(sum(exp(x))), with the largest taken out first; the sum in double.
float log_sum_exp(const float* x, std::int64_t width);

// y = exp(x - lse) * scale, and y[target] -= scale: the gradient of the row's loss. y may be x.
void softmax_gradient(const float* x, float lse, float scale, std::int64_t target, float* y, std::int64_t width);

// With p = exp(x - lse): y = (arrived - m) p * scale, where m = sum of p * arrived, which is returned: the adjoint of a row's gradient.
float softmax_second(const float* arrived, const float* x, float lse, float scale, float* y, std::int64_t width);

// The loss of a row of logits, which become the gradient of the loss: (softmax - onehot) * scale. One exp per element.
float loss_with_gradient(float* x, float scale, std::int64_t target, std::int64_t width);

}  // namespace plimsoll::kernels::cpu
