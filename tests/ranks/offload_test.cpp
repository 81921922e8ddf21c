// Optimizer state in the host's memory: every bit as with everything on the device, for every way ranks share the rest; and the
// bytes are those of masters and moments, with little beside them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

struct Mix {
  const char* name;
  Family family;
  Precision precision = Precision::f32;
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t zero = 0;
  std::int64_t micro = 1;
};

Layout layout_of(const Mix& mix, bool host) {
  Layout layout{.strategy = {}, .micro = mix.micro};
  layout.strategy.data = mix.data;
  layout.strategy.tensor = mix.tensor;
  layout.strategy.zero = mix.zero;
  layout.strategy.bucket = base::Bytes{20'000};
  if (host) layout.strategy.offload.optimizer.host = 1.0;
  return layout;
}

class OptimizerOnTheHost : public testing::TestWithParam<Mix> {};

TEST_P(OptimizerOnTheHost, IsTheSameBits) {
  const Mix& mix = GetParam();
  Task task{.model = small_model(mix.family), .precision = mix.precision, .samples = 8};
  if (mix.tensor > 1) task.model.kv_heads = 4;
  const Outcome device = train(task, layout_of(mix, false));
  const Outcome host = train(task, layout_of(mix, true));
  EXPECT_EQ(host.losses, device.losses);
  EXPECT_EQ(host.norms, device.norms);
  EXPECT_EQ(host.evaluation, device.evaluation);
  for (const auto& [name, values] : device.parameters) EXPECT_EQ(host.parameters.at(name), values) << name;
  EXPECT_EQ(host.sent, host.predicted);
  EXPECT_EQ(device.host_arena, 0);
  EXPECT_LT(host.arena, device.arena);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OptimizerOnTheHost,
                         testing::Values(Mix{"gpt2_f32", Family::gpt2}, Mix{"gpt2_bf16_micro", Family::gpt2, Precision::bf16, 1, 1, 0, 2},
                                         Mix{"gpt2_fp16", Family::gpt2, Precision::fp16, 1, 1, 0, 8},
                                         Mix{"llama_bf16", Family::llama, Precision::bf16}, Mix{"bert_f32", Family::bert},
                                         Mix{"gpt2_data2", Family::gpt2, Precision::f32, 2},
                                         Mix{"gpt2_data2_zero1", Family::gpt2, Precision::bf16, 2, 1, 1},
                                         Mix{"llama_data4_zero2", Family::llama, Precision::bf16, 4, 1, 2},
                                         Mix{"gpt2_data2_zero3", Family::gpt2, Precision::f32, 2, 1, 3},
                                         Mix{"gpt2_tensor2", Family::gpt2, Precision::bf16, 1, 2},
                                         Mix{"bert_data2_tensor2_zero3", Family::bert, Precision::f32, 2, 2, 3}),
                         [](const auto& each) { return each.param.name; });

// 12 bytes for each parameter, and what is under way: gradients of two blocks and weights of as many.
TEST(OptimizerOnTheHost, HasNoHiddenCopies) {
  Task task{.model = small_model(Family::gpt2), .precision = Precision::bf16, .samples = 2, .steps = 1};
  task.model.layers = 12;
  const Outcome host = train(task, layout_of({"", Family::gpt2, Precision::bf16, 1, 1, 0, 2}, true));
  std::int64_t parameters = 0;
  for (const auto& [name, values] : host.parameters) parameters += static_cast<std::int64_t>(values.size());
  EXPECT_GE(host.host_arena, 12 * parameters);
  EXPECT_LE(static_cast<double>(host.host_arena), 13.5 * static_cast<double>(parameters));
}

}  // namespace
}  // namespace plimsoll::ranks
