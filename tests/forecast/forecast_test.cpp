// A run's step on clusters that are not here: both forms agree, what cannot be is refused, and large ones are quick.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "cluster/presets.h"
#include "config/config.h"
#include "train/foresight/forecast.h"

namespace plimsoll::train {
namespace {

using testing::HasSubstr;

config::Run run_of(const std::string& strategy, const std::string& model, std::int64_t batch) {
  const std::string text =
      fmt::format(R"({{"model": {}, "batch": {{"global": {}, "micro": 1, "sequence": 64}}, "precision": "bf16", "strategy": {}}})", model,
                  batch, strategy);
  return config::parse_run(text, "run.json", {});
}

const char* const kSmall = R"({"family": "gpt2", "layers": 8, "width": 128, "heads": 8, "context": 64, "vocab": 512})";

std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::Error& error) {
    return fmt::format("{}: {}", error.exit_code(), error.what());
  }
  return "(no error)";
}

TEST(Forecast, IsTheSameFromAPlanAndAnOutline) {
  const config::Run run = run_of(R"({"data": 2, "tensor": 2, "pipe": 4, "zero": 1, "recompute": "full"})", kSmall, 16);
  const cluster::Cluster cluster = cluster::preset("dgx-h100:2");
  const Forecast whole = forecast(run, cluster, {.spans = true, .outline = false});
  const Forecast outlined = forecast(run, cluster, {.outline = true});
  EXPECT_NEAR(outlined.result.seconds, whole.result.seconds, 1e-3 * whole.result.seconds);
  EXPECT_TRUE(whole.fits());
  EXPECT_DOUBLE_EQ(whole.tokens_per_second, 16 * 64 / whole.result.seconds);
  // The waterline is the plan's, over time.
  const auto line = waterline_over_time(whole, 0, plan::Tier::device, 50);
  ASSERT_LE(line.size(), 50u);
  base::Bytes most{0};
  for (std::size_t point = 0; point < line.size(); ++point) {
    most = std::max(most, line[point].second);
    EXPECT_LE(line[point].first, whole.result.seconds);
  }
  EXPECT_LE(most, whole.plan.classes[whole.result.times[0].rank_class].arena[0]);
  EXPECT_GT(most.count, 0);
}

// What brings rows of a table on disk, and takes them back, is part of a step: at most a page for each row, there and back.
TEST(Forecast, CountsRowsOnDisk) {
  const char* const untied = R"({"family": "gpt2", "layers": 2, "width": 128, "heads": 8, "context": 64, "vocab": 100000, "tied": false})";
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  const Forecast whole = forecast(run_of(R"({"data": 1})", untied, 16), cluster, {});
  const Forecast rows = forecast(run_of(R"({"data": 1, "embedding_rows": "disk"})", untied, 16), cluster, {});
  const double moved = 2.0 * 16 * 64 * 4096;
  EXPECT_EQ(rows.result.bytes[3] - whole.result.bytes[3], moved);
  EXPECT_GT(rows.step_seconds, rows.result.seconds);
  EXPECT_NEAR(static_cast<double>(rows.plan.classes[0].arena[2].count), 100000.0 * 4096, 3 * 4096);
  EXPECT_LT(rows.plan.classes[0].arena[0], whole.plan.classes[0].arena[0]);
}

TEST(Forecast, SaysWhatDoesNotFit) {
  cluster::Cluster cluster = cluster::preset("dgx-h100");
  cluster.device.memory = base::Bytes{2 << 20};
  cluster.device.reserve = base::Bytes{0};
  const Forecast result = forecast(run_of(R"({"data": 2})", kSmall, 16), cluster, {});
  EXPECT_FALSE(result.fits());
  EXPECT_THAT(result.reason, HasSubstr("too much"));
  config::Run limited = run_of(R"({"data": 2})", kSmall, 16);
  limited.limits.device = base::Bytes{1 << 20};
  EXPECT_THAT(forecast(limited, cluster::preset("dgx-h100")).reason, HasSubstr("1.00 MiB"));
}

// Updates that clipping holds back run under the next forward pass where the host's memory has room for the gradients that wait; then the
// step is shorter. From a plan and from an outline.
TEST(Forecast, UpdatesWaitForTheNextForwardPassWhereThereIsRoom) {
  config::Run run = run_of(R"({"data": 2, "tensor": 2, "zero": 1, "recompute": "full", "offload": {"optimizer": "host"}})",
                           R"({"family": "gpt2", "layers": 8, "width": 512, "heads": 8, "context": 1024, "vocab": 512})", 32);
  run.batch.micro = 16;
  run.batch.sequence = 1024;
  run.optimizer.clip = 1.0;
  cluster::Cluster cluster = cluster::preset("hgx-h200");
  cluster.host.bandwidth = 20e9;  // a host of which much is to be hidden
  const auto host = [](const Forecast& forecast, std::int64_t folded) {
    return plan::arena_of_all(forecast.plan, plan::Tier::host).count * folded;
  };
  for (const bool outline : {false, true}) {
    const std::int64_t folded = outline ? 2 : 1;
    run.strategy.carry_update = strategy::CarryUpdate::never;
    cluster.host.memory = base::Bytes{1ll << 40};
    const Forecast behind = forecast(run, cluster, {.outline = outline});
    run.strategy.carry_update = strategy::CarryUpdate::automatic;
    const Forecast under = forecast(run, cluster, {.outline = outline});
    EXPECT_LT(under.step_seconds, 0.98 * behind.step_seconds);
    EXPECT_GT(host(under, folded), host(behind, folded));
    cluster.host.memory = base::Bytes{host(under, folded)};
    EXPECT_EQ(forecast(run, cluster, {.outline = outline}).step_seconds, under.step_seconds);
    cluster.host.memory = base::Bytes{host(under, folded) - 1};
    EXPECT_EQ(forecast(run, cluster, {.outline = outline}).step_seconds, behind.step_seconds);
    // Of so few tokens a link cannot take the gradients in time.
    config::Run short_run = run;
    short_run.batch.sequence = 16;
    cluster.host.memory = base::Bytes{1ll << 40};
    const Forecast beside = forecast(short_run, cluster, {.outline = outline});
    short_run.strategy.carry_update = strategy::CarryUpdate::never;
    EXPECT_EQ(forecast(short_run, cluster, {.outline = outline}).step_seconds, beside.step_seconds);
  }
}

TEST(Forecast, RefusesWhatCannotBe) {
  const cluster::Cluster cluster = cluster::preset("dgx-h100");
  EXPECT_THAT(failure_of([&] { forecast(run_of(R"({"data": 16})", kSmall, 16), cluster); }), HasSubstr("3: the strategy has 16 ranks"));
  EXPECT_THAT(failure_of([&] { forecast(run_of(R"("auto")", kSmall, 16), cluster); }), HasSubstr("2: run.json"));
}

// Llama 3 of 405 billion parameters: 430 TFLOP/s on 8,192 H100s, 400 on 16,384 with the same batch. The ends of the model have a layer less
// each there, so that all stages take as long: here they have them.
TEST(Forecast, OfAPublishedLlamaIsNear) {
  for (const auto& [data, published] : {std::pair{64, 430.0}, {128, 400.0}}) {
    config::Run run = run_of(
        fmt::format(
            R"({{"data": {}, "tensor": 8, "pipe": 16, "chunks": 4, "schedule": "interleaved", "sequence_parallel": true, "zero": 2}})",
            data),
        R"({"family": "llama", "layers": 128, "width": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248, "vocab": 128256, "context": 8192})",
        2048);
    run.batch.sequence = 8192;
    const Forecast result = forecast(run, cluster::preset(fmt::format("dgx-h100:{}", data * 16)));
    EXPECT_NEAR(result.result.model_tflops_per_device(), published, 0.1 * published) << data;
  }
}

// One run of each source in bench/published.py, none of which set a constant: tokens a second of one device.
TEST(Forecast, OfPublishedRunsIsNear) {
  struct Row {
    const char* preset;
    model::Precision precision;
    std::int64_t global, micro, sequence;
    const char* strategy;
    const char* model;
    double published;
  };
  const Row rows[] = {
      {"dgx-a100-80g:1", model::Precision::bf16, 128, 8, 8192, R"({"data": 8, "zero": 3, "recompute": "full"})",
       R"({"family": "gpt2", "layers": 32, "width": 4096, "heads": 32, "vocab": 50368, "context": 8192})", 3206},
      {"dgx-a100-80g:8", model::Precision::bf16, 128, 2, 4096, R"({"data": 64, "zero": 3, "recompute": "full"})",
       R"({"family": "llama", "layers": 80, "width": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 32000, "context": 4096})",
       353},
      {"dgx-h100:16", model::Precision::fp8, 256, 1, 2048,
       R"({"data": 4, "tensor": 4, "pipe": 8, "chunks": 6, "schedule": "interleaved", "sequence_parallel": true, "zero": 1})",
       R"({"family": "gpt2", "layers": 96, "width": 12288, "heads": 96, "vocab": 51200, "context": 2048})", 726},
      {"dgx-a100-80g:1", model::Precision::bf16, 96, 3, 1024, R"({"pipe": 8, "schedule": "zb-h1", "stages": [3, 4, 4, 4, 4, 4, 4, 3]})",
       R"({"family": "gpt2", "layers": 30, "width": 4096, "heads": 32, "vocab": 50304, "context": 1024})", 4096}};
  for (const Row& row : rows) {
    config::Run run = run_of(row.strategy, row.model, row.global);
    run.batch.micro = row.micro;
    run.batch.sequence = row.sequence;
    run.precision = row.precision;
    cluster::Cluster cluster = cluster::preset(row.preset);
    cluster.device.attention = cluster::AttentionForm::tiled;
    const double tokens =
        static_cast<double>(row.global * row.sequence) / (static_cast<double>(cluster.devices()) * forecast(run, cluster).result.seconds);
    EXPECT_NEAR(tokens, row.published, 0.1 * row.published) << row.preset << " " << row.model;
  }
}

// 10 trillion parameters, every axis in use.
TEST(Forecast, OfAHundredThousandRanksIsQuick) {
  config::Run run = run_of(
      R"({"data": 195, "tensor": 8, "pipe": 64, "chunks": 5, "zero": 1, "schedule": "interleaved", "sequence_parallel": true, "recompute": "full"})",
      R"({"family": "gpt2", "layers": 320, "width": 51200, "heads": 320, "context": 2048, "vocab": 51200})", 195 * 64);
  run.batch.sequence = 2048;
  const auto begin = std::chrono::steady_clock::now();
  const Forecast result = forecast(run, cluster::preset("dgx-h100:12480"));
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("{} ranks: step {:.1f} s, {:.0f} TFLOP/s, bubble {:.1f}%, in {:.2f} s\n", result.result.ranks, result.result.seconds,
             result.result.model_tflops_per_device(), 100.0 * result.result.bubble_fraction(), took);
  EXPECT_EQ(result.result.ranks, 99840);
  EXPECT_LT(took, 30.0);
  EXPECT_GT(result.result.model_tflops_per_device(), 100.0);
}

}  // namespace
}  // namespace plimsoll::train
