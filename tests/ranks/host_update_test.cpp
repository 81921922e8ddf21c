// Updates that the host makes: under the backward pass where nothing forbids it, else behind the verdict; on a stream of its own where the
// host is another processor than the device. Every bit is that of everything on the device.
#include <gtest/gtest.h>

#include "io/temporary_folder.h"
#include "ranks/compare.h"
#include "ranks/device_beside.h"
#include "ranks/layouts.h"

namespace plimsoll::ranks {
namespace {

using model::Family;
using model::Precision;

struct Case {
  const char* name;
  Family family = families::gpt2();
  Precision precision = Precision::f32;
  double clip = 0.0;
  const char* tiers = "--h";  // of weights, gradients and optimizer state
  std::int64_t data = 1;
  std::int64_t tensor = 1;
  std::int64_t pipe = 1;
  std::int64_t zero = 0;
  std::int64_t samples = 2;
  const char* schedule = "1f1b";
  strategy::Recompute recompute = strategy::Recompute::none;
};

strategy::TierShare share_of(char tier) {
  return tier == 'h' ? strategy::TierShare{.host = 1.0} : tier == 'd' ? strategy::TierShare{.disk = 1.0} : strategy::TierShare{};
}

class HostUpdate : public testing::TestWithParam<Case> {
 protected:
  tests::TemporaryFolder folder_;
};

TEST_P(HostUpdate, IsTheSameBits) {
  const Case& given = GetParam();
  Task task{.model = small_model(given.family), .precision = given.precision, .clip = given.clip, .samples = given.samples};
  task.model.layers = 4;
  if (given.tensor > 1) task.model.kv_heads = 4;
  Layout layout{.strategy = {}, .micro = 1};
  layout.strategy.data = given.data;
  layout.strategy.tensor = given.tensor;
  layout.strategy.pipe = given.pipe;
  layout.strategy.zero = given.zero;
  layout.strategy.schedule = given.schedule;
  layout.strategy.recompute = given.recompute;
  layout.strategy.bucket = base::Bytes{20'000};
  layout.strategy.prefetch = 1;
  layout.strategy.keep_grads = false;
  layout.disk_folder = folder_.path().string();
  const Outcome device = train(task, layout);
  layout.strategy.offload = {
      .optimizer = share_of(given.tiers[2]), .gradients = share_of(given.tiers[1]), .params = share_of(given.tiers[0]), .activations = {}};
  const Outcome host = train(task, layout);
  expect_same_bits(host, device);
  EXPECT_EQ(host.sent, host.predicted);
  EXPECT_LT(host.arena, device.arena);
  const DeviceBeside beside;
  task.backend = &beside;
  const Outcome apart = train(task, layout);
  expect_same_bits(apart, device);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, HostUpdate,
    testing::Values(Case{.name = "gpt2", .samples = 1}, Case{.name = "gpt2_micro_bf16", .precision = Precision::bf16},
                    Case{.name = "llama_disk", .family = families::llama(), .tiers = "--d"},
                    Case{.name = "bert_recompute", .family = families::bert(), .recompute = strategy::Recompute::full},
                    Case{.name = "gradients_host", .precision = Precision::bf16, .tiers = "-hh", .samples = 3},
                    Case{.name = "all_host", .tiers = "hhh"}, Case{.name = "all_disk", .precision = Precision::bf16, .tiers = "ddd"},
                    Case{.name = "data2", .data = 2, .samples = 4}, Case{.name = "gradients_data2", .tiers = "-hh", .data = 2},
                    Case{.name = "params_data2", .tiers = "hhh", .data = 2}, Case{.name = "params_disk_data2", .tiers = "d-d", .data = 2},
                    Case{.name = "zero1", .precision = Precision::bf16, .data = 2, .zero = 1, .samples = 4},
                    Case{.name = "zero2", .family = families::llama(), .data = 4, .zero = 2, .samples = 8},
                    Case{.name = "zero3", .precision = Precision::bf16, .tiers = "hhh", .data = 2, .zero = 3, .samples = 4},
                    Case{.name = "tensor2", .tensor = 2}, Case{.name = "gradients_tensor2", .clip = 1.0, .tiers = "-hh", .tensor = 2},
                    Case{.name = "gradients_disk_tensor2_data2", .tiers = "-dd", .data = 2, .tensor = 2, .zero = 2, .samples = 4},
                    Case{.name = "pipe2", .precision = Precision::bf16, .pipe = 2, .samples = 4},
                    Case{.name = "pipe2_disk_gpipe", .tiers = "--d", .pipe = 2, .samples = 4, .schedule = "gpipe"},
                    Case{.name = "pipe2_zb", .pipe = 2, .samples = 4, .schedule = "zb-h1"},
                    Case{.name = "gradients_pipe2", .clip = 1.0, .tiers = "-hh", .pipe = 2, .samples = 4},
                    Case{.name = "gradients_disk_pipe2_zb", .tiers = "-dd", .pipe = 2, .samples = 4, .schedule = "zb-h1"},
                    Case{.name = "all_pipe2_data2_zero3", .tiers = "hhh", .data = 2, .pipe = 2, .zero = 3, .samples = 8},
                    Case{.name = "pipedream_keeps_to_the_end", .pipe = 2, .samples = 4, .schedule = "2bw"},
                    Case{.name = "clipped", .precision = Precision::bf16, .clip = 1.0, .tiers = "-hh"},
                    Case{.name = "clipped_disk", .clip = 0.5, .tiers = "ddd"},
                    Case{.name = "scaled", .precision = Precision::fp16, .tiers = "--h"}),
    [](const auto& each) { return each.param.name; });

// 12 bytes for each parameter and what is under way, wherever the host computes and whether or not it waits for a verdict.
TEST(HostUpdateMemory, HasNoHiddenCopiesBesideADevice) {
  const DeviceBeside beside;
  const auto bytes_per_parameter = [&](double clip, strategy::CarryUpdate carry = strategy::CarryUpdate::never) {
    Task task{.model = small_model(families::gpt2()), .precision = Precision::bf16, .clip = clip, .samples = 1, .steps = 1};
    task.model.layers = 16;
    task.backend = &beside;
    Layout layout{.strategy = {}, .micro = 1};
    layout.strategy.bucket = base::Bytes{100'000};
    layout.strategy.offload.optimizer = {.host = 1.0};
    layout.strategy.carry_update = carry;
    const Outcome outcome = train(task, layout);
    std::int64_t parameters = 0;
    for (const auto& [name, values] : outcome.parameters) parameters += static_cast<std::int64_t>(values.size());
    return static_cast<double>(outcome.host_arena) / static_cast<double>(parameters);
  };
  for (const double clip : {0.0, 1.0}) {
    EXPECT_GE(bytes_per_parameter(clip), 12.0) << "clip " << clip;
    EXPECT_LE(bytes_per_parameter(clip), 13.5) << "clip " << clip;
  }
  // Where updates wait for the next step, so do gradients: 2 bytes more of each.
  EXPECT_GE(bytes_per_parameter(1.0, strategy::CarryUpdate::always), 14.0);
  EXPECT_LE(bytes_per_parameter(1.0, strategy::CarryUpdate::always), 15.5);
}

}  // namespace
}  // namespace plimsoll::ranks
