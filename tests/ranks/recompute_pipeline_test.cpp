// Recompute over several blocks, and chosen together with what leaves the device, inside the stages of a pipeline: every bit is that of the
// pipeline that keeps everything, and every rank keeps its limit to the byte.
#include <gtest/gtest.h>

#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "support/refusal.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::Recompute;

struct Case {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
  std::int64_t pipe = 2;
  const char* schedule = "1f1b";
  std::int64_t chunks = 1;
  std::int64_t data = 1;
  std::int64_t zero = 0;
  std::int64_t tensor = 1;
};

class RecomputeInPipelines : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& given = GetParam();
    task_.model = small_model(given.family);
    task_.precision = given.precision;
    task_.samples = 4 * given.data;
    task_.steps = 2;
    task_.model.layers = 8;
    task_.model.dropout = 0.1;
    if (given.tensor > 1) task_.model.kv_heads = 4;
    layout_.strategy.pipe = given.pipe;
    layout_.strategy.schedule = given.schedule;
    layout_.strategy.chunks = given.chunks;
    layout_.strategy.data = given.data;
    layout_.strategy.zero = given.zero;
    layout_.strategy.tensor = given.tensor;
    layout_.strategy.bucket = base::Bytes{20'000};
    kept_ = train(task_, layout_);
  }

  Outcome as_kept(const Layout& layout) {
    Outcome found = train(task_, layout);
    expect_same_bits(found, kept_);
    EXPECT_EQ(found.sent, found.predicted);
    return found;
  }

  Task task_;
  Layout layout_;
  Outcome kept_;
};

TEST_P(RecomputeInPipelines, IsTheSameBitsWithinTheLimit) {
  Layout layout = layout_;
  layout.strategy.recompute = Recompute::full;
  const Outcome full = as_kept(layout);
  ASSERT_LT(full.arena, kept_.arena);
  layout.strategy.recompute_every = 2;
  as_kept(layout);
  layout.strategy.recompute_every = 1;
  layout.strategy.recompute = Recompute::optimal;
  for (const std::int64_t limit : {(full.arena + kept_.arena) / 2, std::min(full.arena + full.arena / 50, kept_.arena - 1)}) {
    SCOPED_TRACE(fmt::format("{} of {} B, full needs {}", limit, kept_.arena, full.arena));
    layout.device_limit = base::Bytes{limit};
    const Outcome optimal = as_kept(layout);
    EXPECT_LE(optimal.arena, limit);
    EXPECT_GT(optimal.extra_arithmetic, 0.0);
  }
  layout.device_limit = base::Bytes{kept_.arena};
  EXPECT_EQ(as_kept(layout).extra_arithmetic, 0.0);
  layout.device_limit = base::Bytes{full.arena / 8};
  EXPECT_NE(tests::refusal([&] { train(task_, layout); }, base::ErrorKind::not_legal).find("a rank needs"), std::string::npos);
}

// What leaves the device and what runs again, chosen together.
TEST_P(RecomputeInPipelines, ComposesWithWhatLeaves) {
  Layout layout = layout_;
  layout.strategy.recompute = Recompute::full;
  const std::int64_t full = train(task_, layout).arena;
  layout.strategy.recompute = Recompute::optimal;
  layout.strategy.offload.activations = {.host = 1.0};
  layout.strategy.prefetch = 1;
  layout.device_limit = base::Bytes{(full + kept_.arena) / 2};
  const Outcome joint = as_kept(layout);
  EXPECT_LE(joint.arena, layout.device_limit.count);
}

INSTANTIATE_TEST_SUITE_P(Schedules, RecomputeInPipelines,
                         testing::Values(Case{.name = "1f1b"}, Case{.name = "pipe4", .precision = Precision::bf16, .pipe = 4},
                                         Case{.name = "gpipe", .schedule = "gpipe"}, Case{.name = "zb", .schedule = "zb-h1"},
                                         Case{.name = "interleaved", .family = families::llama(), .schedule = "interleaved", .chunks = 2},
                                         Case{.name = "varuna", .schedule = "varuna"}, Case{.name = "data2_zero3", .data = 2, .zero = 3},
                                         Case{.name = "tensor2", .tensor = 2}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace plimsoll::ranks
