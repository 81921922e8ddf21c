// Whatever lives in the host's memory or on a drive beside a GPU, every bit is as with everything on the device.
#include <gtest/gtest.h>

#include "base/error.h"
#include "executor/cuda/load/cuda_backend.h"
#include "io/temporary_folder.h"
#include "ranks/compare.h"
#include "ranks/disk_faults.h"
#include "ranks/layouts.h"
#include "strategy/legality.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;
using strategy::Offload;

struct Mix {
  const char* name;
  Family family;
  Precision precision;
  double clip;
  std::int64_t micro;  // samples of a micro-batch; 8 are a step
};

class TiersOfAGpu : public testing::TestWithParam<Mix> {
 protected:
  // Four steps: issued, captured, replayed twice.
  Task task() const {
    return {.model = small_model(GetParam().family),
            .precision = GetParam().precision,
            .clip = GetParam().clip,
            .steps = 4,
            .backend = &executor::cuda_backend()};
  }
  Layout layout(const Offload& offload) const {
    Layout layout{.strategy = {}, .micro = GetParam().micro, .disk_folder = folder_.path().string()};
    layout.strategy.bucket = base::Bytes{20'000};
    layout.strategy.offload = offload;
    return layout;
  }

  tests::TemporaryFolder folder_;
};

TEST_P(TiersOfAGpu, HaveTheBitsOfTheDeviceAlone) {
  const Outcome alone = train(task(), layout({}));
  const strategy::TierShare none{};
  const strategy::TierShare host{.host = 1.0};
  const strategy::TierShare disk{.disk = 1.0};
  // Of optimizer state, gradients, weights and activations.
  const std::vector<Offload> mixes{{host, none, none, none},
                                   {host, none, host, none},
                                   {host, host, host, none},
                                   {none, none, none, host},
                                   {host, host, host, host},
                                   {{.host = 0.4}, none, none, none},
                                   {{.host = 0.3, .disk = 0.4}, none, none, none},
                                   {disk, none, none, none},
                                   {disk, disk, disk, none},
                                   {disk, none, host, disk}};
  for (const Offload& offload : mixes) {
    Layout moved = layout(offload);
    SCOPED_TRACE(strategy::describe(moved.strategy));
    const Outcome outcome = train(task(), moved);
    expect_same_bits(outcome, alone);
    EXPECT_GT(outcome.host_arena, 0);
    EXPECT_EQ(outcome.disk_arena > 0, offload.optimizer.disk > 0.0);
    moved.strategy.recompute = strategy::Recompute::full;
    expect_same_bits(train(task(), moved), alone);
    if (!offload.optimizer.anything()) continue;
    moved.strategy.carry_update = strategy::CarryUpdate::always;
    expect_same_bits(train(task(), moved), alone);
  }
}

// Updates a step late: the same bits from whatever tier, and what the processor trains.
TEST_P(TiersOfAGpu, DelayedUpdatesAreTheProcessors) {
  const strategy::TierShare none{};
  Layout late = layout({{.host = 1.0}, none, none, none});
  late.strategy.delayed_update = true;
  const Outcome host = train(task(), late);
  Task on_processor = task();
  on_processor.backend = nullptr;
  expect_close(host, train(on_processor, late), tolerance(GetParam().precision));
  late.strategy.offload = {{.host = 0.5, .disk = 0.5}, none, {.host = 1.0}, none};
  SCOPED_TRACE(strategy::describe(late.strategy));
  expect_same_bits(train(task(), late), host);
}

// Rows of a token table on disk come to the GPU and go back: with plain gradient descent what the whole table there gives.
TEST_P(TiersOfAGpu, RowsOnDiskTrainAsTheWholeTable) {
  Task rows = task();
  rows.model.tied = false;
  rows.clip = 0.0;
  rows.optimizer = "sgd";
  Layout moved = layout({});
  const Outcome alone = train(rows, moved);
  moved.strategy.embedding_rows = strategy::EmbeddingRows::disk;
  for (const bool on_host : {false, true}) {
    if (on_host) moved.strategy.offload.optimizer = {.host = 1.0};
    const Outcome outcome = train(rows, moved);
    expect_close(outcome, alone, tolerance(GetParam().precision));
    EXPECT_GT(outcome.disk_arena, 0);
  }
}

// A drive that fails under a running GPU: the run ends with what happened and where, and nobody waits for ever.
TEST(DriveOfAGpu, ThatFailsEndsTheRun) {
  using io::FaultKind;
  const tests::TemporaryFolder folder;
  const Task task{
      .model = small_model(families::gpt2()), .precision = Precision::bf16, .samples = 2, .steps = 3, .backend = &executor::cuda_backend()};
  Layout layout{.strategy = {}, .micro = 2, .disk_folder = folder.path().string()};
  layout.strategy.bucket = base::Bytes{20'000};
  layout.strategy.offload = {.optimizer = {.disk = 1.0}, .gradients = {}, .params = {.disk = 1.0}, .activations = {.disk = 1.0}};
  expect_no_silent_fault(task, layout, 97, {FaultKind::io_error, FaultKind::short_read, FaultKind::flipped_read, FaultKind::lost_write});
}

INSTANTIATE_TEST_SUITE_P(Models, TiersOfAGpu,
                         testing::Values(Mix{"gpt2_f32", families::gpt2(), Precision::f32, 1.0, 8},
                                         Mix{"gpt2_bf16", families::gpt2(), Precision::bf16, 1.0, 8},
                                         Mix{"gpt2_bf16_without_clipping", families::gpt2(), Precision::bf16, 0.0, 8},
                                         Mix{"gpt2_bf16_accumulated", families::gpt2(), Precision::bf16, 1.0, 2},
                                         Mix{"gpt2_fp16", families::gpt2(), Precision::fp16, 1.0, 4},
                                         Mix{"llama_bf16", families::llama(), Precision::bf16, 0.0, 4}),
                         [](const auto& mix) { return mix.param.name; });

}  // namespace
}  // namespace plimsoll::ranks
