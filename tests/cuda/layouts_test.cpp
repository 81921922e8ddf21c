// Whole models on a GPU: what the processor computes, the same bits every time, and every layout of ranks (threads that share the
// one GPU) what one rank computes.
#include <gtest/gtest.h>

#include <cmath>

#include "executor/cuda/load/cuda_backend.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

struct Mix {
  const char* name;
  Family family;
  Precision precision;
};

Layout layout_of(std::int64_t data, std::int64_t tensor, std::int64_t zero, std::int64_t micro = 2) {
  Layout layout{.strategy = {}, .micro = micro};
  layout.strategy.data = data;
  layout.strategy.tensor = tensor;
  layout.strategy.zero = zero;
  layout.strategy.bucket = base::Bytes{20'000};
  return layout;
}

double tolerance(Precision precision) { return precision == Precision::f32 ? 2e-5 : 2e-2; }

void expect_close(const Outcome& found, const Outcome& expected, double limit) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t step = 0; step < found.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], limit * expected.losses[step]) << "loss of step " << step + 1;
    EXPECT_NEAR(found.norms[step], expected.norms[step], 10 * limit * expected.norms[step]) << "norm of step " << step + 1;
  }
  EXPECT_NEAR(found.evaluation, expected.evaluation, limit * expected.evaluation);
}

class OnGpu : public testing::TestWithParam<Mix> {
 protected:
  Task task(bool gpu = true) const {
    return {.model = small_model(GetParam().family),
            .precision = GetParam().precision,
            .steps = 4,  // issued, captured, replayed
            .backend = gpu ? &executor::cuda_backend() : nullptr};
  }
  double limit() const { return tolerance(GetParam().precision); }
};

TEST_P(OnGpu, IsTheProcessor) { expect_close(train(task(), layout_of(1, 1, 0)), train(task(false), layout_of(1, 1, 0)), limit()); }

TEST_P(OnGpu, IsTheSameEveryTime) {
  const Outcome first = train(task(), layout_of(1, 1, 0));
  const Outcome second = train(task(), layout_of(1, 1, 0));
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.norms, second.norms);
  EXPECT_EQ(first.parameters, second.parameters);
}

TEST_P(OnGpu, EveryLayoutIsOneRank) {
  const Outcome alone = train(task(), layout_of(1, 1, 0));
  for (const Layout& layout : {layout_of(1, 1, 0, 4), layout_of(2, 1, 0), layout_of(2, 1, 1), layout_of(4, 1, 2), layout_of(2, 1, 3),
                               layout_of(1, 2, 0), layout_of(2, 2, 1)}) {
    SCOPED_TRACE(strategy::describe(layout.strategy));
    expect_close(train(task(), layout), alone, limit());
  }
}

TEST_P(OnGpu, RecomputingGivesTheSameBits) {
  Layout again = layout_of(1, 1, 0);
  again.strategy.recompute = strategy::Recompute::full;
  EXPECT_EQ(train(task(), again).losses, train(task(), layout_of(1, 1, 0)).losses);
}

INSTANTIATE_TEST_SUITE_P(Models, OnGpu,
                         testing::Values(Mix{"gpt2_f32", Family::gpt2, Precision::f32}, Mix{"gpt2_bf16", Family::gpt2, Precision::bf16},
                                         Mix{"gpt2_fp16", Family::gpt2, Precision::fp16}, Mix{"llama_f32", Family::llama, Precision::f32},
                                         Mix{"llama_bf16", Family::llama, Precision::bf16}, Mix{"bert_f32", Family::bert, Precision::f32}),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace
}  // namespace plimsoll::ranks
