// DeepSpeed's JSON beside and inside a run file: what each key becomes, what is refused, what is warned of.
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/table.h"
#include "config/config.h"
#include "config/deepspeed_keys.h"
#include "config/deepspeed_runs.h"
#include "config/message.h"
#include "strategy/legality.h"

namespace plimsoll::config {
namespace {

// What the planner is to choose stays open, also where a key would only suggest it.
TEST(DeepSpeed, LeavesAnOpenStrategyOpen) {
  const config::Run run =
      run_of(R"({"activation_checkpointing": {"cpu_checkpointing": true}, "zero_optimization": {"stage": 2}})", R"({"strategy": "auto"})");
  EXPECT_TRUE(run.strategy == strategy::Strategy{});
  EXPECT_TRUE(says(deepspeed_warning(run), "the planner chooses"));
}

TEST(DeepSpeed, KeysBecomeSettings) {
  const config::Run run = run_of(R"({
    # comments and trailing commas are fine
    "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 2e-5, "betas": [0.8, 0.999], "eps": 1e-7, "weight_decay": 3e-7}},
    "gradient_clipping": 0.5,
    "fp16": {"enabled": true, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3, "min_loss_scale": 2},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8, "stage3_prefetch_bucket_size": 0,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/scratch"}, "offload_param": {"device": "cpu"}},
    "activation_checkpointing": {"number_checkpoints": 4},
    "tensor_parallel": {"autotp_size": 2}, /* and so is this */
  })");
  EXPECT_EQ(run.batch.global, 32);
  EXPECT_EQ(run.batch.micro, 4);
  EXPECT_EQ(run.strategy.data, 4);  // 32 / (4 x 2)
  EXPECT_EQ(run.micro_batches(), 2);
  EXPECT_EQ(run.optimizer.rule->name, "adamw");  // as DeepSpeed's Adam, unless adam_w_mode is false
  EXPECT_EQ(run.lr, 2e-5);
  EXPECT_EQ(run.optimizer.number("beta1"), 0.8);
  EXPECT_EQ(run.optimizer.weight_decay, 3e-7);
  EXPECT_EQ(run.optimizer.clip, 0.5);
  EXPECT_EQ(run.precision, model::Precision::fp16);
  EXPECT_EQ(run.loss_scale, (model::LossScaling{.initial = 4096.0, .window = 500, .hysteresis = 3, .minimum = 2.0}));
  EXPECT_EQ(run.strategy.zero, 3);
  EXPECT_EQ(run.strategy.bucket.count, 1'000'000'000);  // two bytes an element
  EXPECT_EQ(run.strategy.prefetch, 0);
  EXPECT_EQ(run.strategy.offload.optimizer, (strategy::TierShare{.disk = 1.0}));
  EXPECT_EQ(run.strategy.offload.params, (strategy::TierShare{.host = 1.0}));
  EXPECT_EQ(run.limits.disk_path, "/scratch");
  EXPECT_EQ(run.strategy.recompute, strategy::Recompute::full);
  EXPECT_EQ(run.strategy.tensor, 2);
  EXPECT_EQ(run.origin("strategy.zero").text, "ds.json:7:36 zero_optimization.stage");
  EXPECT_EQ(run.deepspeed.equation,
            "batch: train_batch_size 32 = micro-batch 4 x accumulation steps 2 x data ranks 4 (solved for data ranks)");
  EXPECT_EQ(deepspeed_warning(run), "");
}

// DeepSpeed reads its file as HJSON.
TEST(DeepSpeed, QuotesCommasAndBracesAreOptional) {
  const std::string_view text = R"(
    train_batch_size: 32  # in all
    optimizer: {
      type: AdamW
      params: {lr: 2e-5, betas: [0.8, 0.999]}
    }
    zero_optimization: {
      stage: 3
      offload_optimizer: {
        device: nvme
        nvme_path: /scratch
      }
    })";
  const config::Run run = run_of(text);
  EXPECT_EQ(run.batch.global, 32);
  EXPECT_EQ(run.lr, 2e-5);
  EXPECT_EQ(run.limits.disk_path, "/scratch");
  EXPECT_EQ(run.origin("limits.disk_path").text, "ds.json:11:20 zero_optimization.offload_optimizer.nvme_path");
  EXPECT_NE(message_of([&] { parse_run("steps: 5", "run.json"); }), "no error");  // a run file is JSON
}

// As pydantic does.
TEST(DeepSpeed, ValuesAreConverted) {
  for (std::string_view yes : {"true", "1", "1.0", R"("true")", R"("True")", R"("1")", R"("on")"}) {
    EXPECT_EQ(run_of(fmt::format(R"({{"bf16": {{"enabled": {}}}}})", yes)).precision, model::Precision::bf16) << yes;
    EXPECT_TRUE(says(error_of(fmt::format(R"({{"curriculum_learning": {{"enabled": {}}}}})", yes)), "leave the block out")) << yes;
  }
  for (std::string_view no : {"false", "0", R"("false")", R"("0")", R"("no")"}) {
    EXPECT_EQ(run_of(fmt::format(R"({{"bf16": {{"enabled": {}}}}})", no)).precision, model::Precision::f32) << no;
    EXPECT_EQ(deepspeed_warning(run_of(fmt::format(R"({{"dump_state": {}}})", no))), "") << no;
  }
  const config::Run run = run_of(R"({"train_batch_size": "8", "gradient_clipping": "0.5", "zero_optimization": {"stage": "2"}})",
                                 R"({"strategy": {"data": 2}})");
  EXPECT_EQ(run.batch.global, 8);
  EXPECT_EQ(run.optimizer.clip, 0.5);
  EXPECT_EQ(run.strategy.zero, 2);
  EXPECT_EQ(run.origin("strategy.zero").text, "ds.json:1:86 zero_optimization.stage");
  EXPECT_EQ(error_of(R"({"train_batch_size": "eight"})"),
            "ds.json:1:22: found \"eight\" for \"train_batch_size\", expected an integer >= 0 or \"auto\"");
  EXPECT_NE(error_of(R"({"train_batch_size": "inf"})"), "no error");
  EXPECT_NE(message_of([] { parse_run(R"({"steps": "8"})", "run.json"); }), "no error");  // of a run file they are not
}

TEST(DeepSpeed, ItsDefaultsHoldWhereItsBlocksStand) {
  const config::Run run =
      run_of(R"({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 500}}})");
  EXPECT_EQ(run.lr, 1e-3);
  EXPECT_EQ(run.optimizer.number("beta2"), 0.999);
  EXPECT_EQ(run.optimizer.weight_decay, 0.0);
  EXPECT_EQ(run.lr_schedule.warmup, 1000);
  EXPECT_EQ(run.lr_schedule.warmup_shape, WarmupShape::log);
  EXPECT_EQ(run.lr_schedule.min_ratio, 1e-4);
  EXPECT_EQ(run.lr_schedule.end, 500);
  EXPECT_EQ(run.origin("optimizer.eps").text, "DeepSpeed's default");
  const config::Run mine = run_of(R"({"optimizer": {"type": "AdamW"}})", R"({"optimizer": {"lr": 0.5}})");
  EXPECT_EQ(mine.lr, 0.5);  // a default gives way
}

TEST(DeepSpeed, AutoIsLeftToTheRunFile) {
  const config::Run run =
      run_of(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
      "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "weight_decay": "auto"}},
      "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto", "warmup_max_lr": "auto", "warmup_min_lr": "auto"}},
      "zero_optimization": {"reduce_bucket_size": "auto"}})",
             R"({"batch": {"global": 24, "micro": 3}, "optimizer": {"lr": 0.25}, "precision": "bf16", "lr_schedule": {"warmup": 7}})");
  EXPECT_EQ(run.batch.global, 24);
  EXPECT_EQ(run.micro_batches(), 8);
  EXPECT_EQ(run.lr, 0.25);
  EXPECT_EQ(run.optimizer.number("beta2"), 0.95);
  EXPECT_EQ(run.precision, model::Precision::bf16);
  EXPECT_EQ(run.lr_schedule.warmup, 7);
  EXPECT_EQ(run.strategy.bucket, strategy::Strategy{}.bucket);
  EXPECT_EQ(run.deepspeed.equation, "");
}

TEST(DeepSpeed, TheBatchTripleIsSolved) {
  struct Case {
    std::string_view keys;
    std::int64_t data;
    std::int64_t global, micro;
  };
  for (const Case& c :
       {Case{R"({"train_batch_size": 24})", 2, 24, 12}, Case{R"({"train_micro_batch_size_per_gpu": 3})", 2, 6, 3},
        Case{R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3})", 2, 24, 3},
        Case{R"({"train_batch_size": 24, "gradient_accumulation_steps": 4})", 2, 24, 3},
        Case{R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4})", 2, 24, 3},
        Case{R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4})", 2, 24, 3},
        Case{R"({"gradient_accumulation_steps": 4})", 2, 8, 1}, Case{R"({"gradient_accumulation_steps": 3})", 1, 6, 2},
        Case{R"({"gradient_accumulation_steps": 16, "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})", 2, 32, 1}}) {
    const config::Run run = run_of(c.keys, fmt::format(R"({{"strategy": {{"data": {}}}}})", c.data));
    EXPECT_EQ(run.batch.global, c.global) << c.keys;
    EXPECT_EQ(run.batch.micro, c.micro) << c.keys;
    EXPECT_EQ(run.batch.global, run.batch.micro * run.micro_batches() * c.data) << c.keys;
    EXPECT_FALSE(run.deepspeed.equation.empty());
  }
}

TEST(DeepSpeed, ContradictionsAreRefusedWithTheirNumbers) {
  EXPECT_EQ(error_of(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 5})"),
            "ds.json:1:22: found train_batch_size 24 / (train_micro_batch_size_per_gpu 5 x data ranks 1) = 24 / 5, which leaves a "
            "remainder of 4; "
            "expected train_batch_size to be a multiple of the rest");
  EXPECT_EQ(error_of(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4})",
                     R"({"strategy": {"data": 4}})"),
            "ds.json:1:22: found train_batch_size = 24, but train_micro_batch_size_per_gpu 3 x gradient_accumulation_steps 4 x data ranks "
            "4 = 48; "
            "expected the first to be the product of the rest");
  EXPECT_EQ(
      error_of(R"({"zero_optimization": {"stage": 2}})", R"({"strategy": {"data": 2, "zero": 1}})"),
      "ds.json:1:33: found 2 for \"zero_optimization.stage\", which is strategy.zero 2, but run.json:1:34 says 1; expected them to agree: "
      "remove one");
  EXPECT_TRUE(says(error_of(R"({"train_batch_size": 16})", R"({"batch": {"global": 8}})"), "run.json:1:22 says 8 for \"batch.global\""));
  EXPECT_TRUE(says(error_of(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"), "both true"));
  EXPECT_TRUE(says(error_of(R"({"train_batch_size": 1e9, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1})"),
                   "1000000000 data ranks, expected at most 1000000"));
}

TEST(DeepSpeed, SetWins) {
  const config::Run run = run_of(R"({"zero_optimization": {"stage": 3}, "train_batch_size": 64, "gradient_clipping": 2})",
                                 R"({"strategy": {"data": 2}})", {"strategy.zero=1", "batch.global=16", "optimizer.clip=0"});
  EXPECT_EQ(run.strategy.zero, 1);
  EXPECT_EQ(run.batch.global, 16);
  EXPECT_EQ(run.optimizer.clip, 0.0);
}

TEST(DeepSpeed, KeysInsideTheRunFile) {
  const config::Run run = parse_run(R"({"model": "gpt2", "train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
      "checkpoint": {"every": 5}, "zero_optimization": {"stage": 1}, "strategy": {"data": 2}})",
                                    "run.json", {"optimizer.clip=3"});
  EXPECT_EQ(run.batch.global, 16);
  EXPECT_EQ(run.lr, 0.5);
  EXPECT_EQ(run.optimizer.clip, 3.0);
  EXPECT_EQ(run.checkpoint.every, 5);
  EXPECT_EQ(run.strategy.zero, 1);
  const config::Run block = parse_run(R"({"deepspeed": {"gradient_clipping": 0.25}, "optimizer": {"type": "sgd"}})", "run.json");
  EXPECT_EQ(block.optimizer.clip, 0.25);
  EXPECT_EQ(block.optimizer.rule->name, "sgd");
  EXPECT_TRUE(says(error_of(R"({"gradient_clipping": 1})", R"({"gradient_clipping": 2})"),
                   "ds.json:1:2: found \"gradient_clipping\", which run.json"));
}

TEST(DeepSpeed, WhatIsSentInFewerBitsIsSaidByCodecs) {
  const auto sent = [](std::string_view keys) { return run_of(keys, R"({"strategy": {"data": 2}})").strategy.communication; };
  EXPECT_EQ(sent(R"({"communication_data_type": "bfp16"})").gradients.codec, codecs::find_codec("bf16"));
  EXPECT_FALSE(sent(R"({"communication_data_type": "fp32"})").any());
  EXPECT_FALSE(sent(R"({"communication_data_type": "fp16"})").any());
  const codecs::Choices weights = sent(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true}})");
  EXPECT_EQ(weights.weights, choice_of(*codecs::find_codec("int8"), codecs::Use::weights));
  EXPECT_FALSE(weights.gradients.any());
}

TEST(DeepSpeed, AWarningListsWhatDiffers) {
  const config::Run run = run_of(R"({"aio": {"queue_depth": 16, "thread_count": 2, "block_size": 1048576}, "wall_clock_breakdown": true,
      "wandb": {"enabled": true, "team": "x"}, "tensorboard": {"enabled": true}, "comet": {"enabled": false},
      "zero_optimization": {"stage": 2, "sub_group_size": 1e9, "zero_quantized_weights": true}, "gradient_cliping": 1.0})");
  const std::string warning = deepspeed_warning(run);
  EXPECT_TRUE(says(warning,
                   "\n  aio.queue_depth = 16 (ds.json:1:25): the disk tier chooses the size and number of its own requests\n"
                   "  aio.thread_count = 2 (ds.json:1:45): the disk tier"))
      << warning;
  EXPECT_TRUE(says(warning, "wall_clock_breakdown"));
  EXPECT_TRUE(says(warning, "wandb"));
  EXPECT_TRUE(says(warning, "nothing to share out"));
  EXPECT_TRUE(says(warning, "weights are gathered with stage 3 alone, and the stage is 2"));
  EXPECT_TRUE(says(warning, "did you mean \"gradient_clipping\"?"));
  for (std::string_view quiet : {"block_size", "tensorboard", "comet", "sub_group_size"}) EXPECT_FALSE(says(warning, quiet)) << quiet;
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 8);  // a heading and seven keys
  EXPECT_EQ(run.strategy.zero, 0);                                 // one rank: nothing to share out
  const std::string odd = deepspeed_warning(run_of(R"({"two\nlines": 1})"));
  EXPECT_EQ(std::count(odd.begin(), odd.end(), '\n'), 2) << odd;
}

// An example of transformers' documentation has the block there.
TEST(DeepSpeed, DiskSettingsMayStandBelowZero) {
  const config::Run run =
      run_of(R"({"zero_optimization": {"stage": 1, "aio": {"queue_depth": 32, "thread_count": 2, "overlap_events": true}}})");
  const std::string warning = config::deepspeed_warning(run);
  EXPECT_TRUE(says(warning, "aio.queue_depth = 32 (ds.json:1:59): ")) << warning;
}

TEST(DeepSpeed, WrongKeysAndValuesPointAtThemselves) {
  EXPECT_EQ(error_of("{\n \"zero_optimization\": {\"stag\": 2}}"),
            "ds.json:2:32: found the unknown key \"zero_optimization.stag\", did you mean \"stage\"?");
  EXPECT_EQ(error_of(R"({"fp16": {"enabled": 2}})"), "ds.json:1:22: found 2 for \"fp16.enabled\", expected true or false or \"auto\"");
  EXPECT_EQ(error_of(R"({"zero_optimization": {"stage": 4}})"),
            "ds.json:1:33: found 4 for \"zero_optimization.stage\", expected 0, 1, 2 or 3");
  EXPECT_EQ(error_of(R"({"gradient_clipping": -1})"), "ds.json:1:23: found -1 for \"gradient_clipping\", expected a number >= 0");
  EXPECT_TRUE(says(error_of(R"({"optimizer": {"type": "Adadelta"}})"), "expected an update rule that does: SGD, Adam, AdamW"));
  EXPECT_TRUE(says(error_of(R"({"optimizer": {"params": {"muon_lr": 0.02}, "type": "Muon"}})"),
                   "expected an update rule that does: SGD, Adam, AdamW"));
  EXPECT_TRUE(
      says(error_of(R"({"optimizer": {"type": "Muon"}})"), "; leave the block out for \"optimizer.type\": \"muon\" of the run file"));
  EXPECT_TRUE(
      says(error_of(R"({"scheduler": {"params": {"T_max": 9}, "type": "CosineAnnealingLR"}})"), "expected WarmupLR, WarmupDecayLR"));
  EXPECT_TRUE(says(error_of(R"({"curriculum_learning": {"enabled": true}})"), "leave the block out"));
  EXPECT_TRUE(says(error_of(R"({"sparse_attention": {"mode": "fixed", "block": 16}})"), "attention is dense"));
  EXPECT_TRUE(says(error_of(R"({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}}})"),
                   "leave the block out"));
  EXPECT_TRUE(says(error_of(R"({"train_batch_size": 8, "train_batch_size": 8})"), "train_batch_size"));
  EXPECT_TRUE(says(error_of("[]"), "expected an object"));
  EXPECT_EQ(error_of("{}", R"({"bf16": true})"), "run.json:1:10: found true for \"bf16\", expected an object such as {\"enabled\": true}");
  EXPECT_EQ(
      error_of(
          R"({"curriculum_learning": {"enabled": false}, "progressive_layer_drop": {"enabled": false}, "sparse_attention": {"mode": "dense"}})"),
      "no error");
}

// One line each, as if it were alone; relations between keys wait until each is right.
TEST(DeepSpeed, AllErrorsAreShownAtOnce) {
  EXPECT_EQ(
      error_of(R"({"zero_optimization": {"stag": 2, "overlap_comm": "maybe", "stage": 7}, "sparse_attention": {"mode": "fixed"},
 "optimizer": {"type": "Adadelta", "params": {"foo": 1}}, "train_batch_size": 24, "train_micro_batch_size_per_gpu": 5})",
               R"({"steps": -5})"),
      "found 6 mistakes:\n"
      "  run.json:1:11: found -5 for \"steps\", expected an integer >= 0\n"
      "  ds.json:2:24: found \"Adadelta\" for \"optimizer.type\", which does not exist here; expected an update rule that does: SGD, "
      "Adam, AdamW, FusedAdam, CPUAdam, DeepSpeedCPUAdam, OneBitAdam, ZeroOneAdam, RMSprop, Lion, FusedLion, CPULion, DeepSpeedCPULion, "
      "Lamb, FusedLamb, OneBitLamb\n"
      "  ds.json:1:32: found the unknown key \"zero_optimization.stag\", did you mean \"stage\"?\n"
      "  ds.json:1:51: found \"maybe\" for \"zero_optimization.overlap_comm\", expected true or false or \"auto\"\n"
      "  ds.json:1:93: found an object for \"sparse_attention\", which would change what is trained and does not exist here; leave the "
      "block out: attention is dense\n"
      "  ds.json:1:69: found 7 for \"zero_optimization.stage\", expected 0, 1, 2 or 3");
  const std::string contradictions = error_of(R"({"zero_optimization": {"stage": 2}, "gradient_clipping": 2, "train_batch_size": 9})",
                                              R"({"strategy": {"data": 2, "zero": 1}, "optimizer": {"clip": 1}})");
  for (std::string_view part : {"found 3 mistakes:", "says 1", "remove one", "leaves a remainder"})
    EXPECT_TRUE(says(contradictions, part)) << contradictions;
  EXPECT_EQ(error_of(R"({"zero_optimization": {"nothing_like_it": 1}})"),
            "ds.json:1:43: found the unknown key \"zero_optimization.nothing_like_it\", expected one that docs/deepspeed.md lists below "
            "\"zero_optimization\"");
  std::string many = R"({"fp16": {)";
  for (int i = 0; i < 100'000; ++i) many += fmt::format("\"key{}\": 1, ", i);
  EXPECT_TRUE(says(error_of(many + "}}"), "found 20 or more mistakes"));
  many = "{";
  for (int i = 0; i < 100'000; ++i) many += fmt::format("\"key{}\": 1, ", i);
  EXPECT_TRUE(says(error_of(many + "}"), "found more than 2000 keys"));  // quickly
}

TEST(DeepSpeed, OlderSpellings) {
  const config::Run run =
      run_of(R"({"bfloat16": {"enabled": true}, "zero_optimization": {"stage": 2, "cpu_offload": true, "cpu_offload_param": "auto"}})",
             R"({"strategy": {"data": 2}})", {});
  EXPECT_EQ(run.precision, model::Precision::bf16);
  EXPECT_EQ(run.strategy.offload.optimizer, (strategy::TierShare{.host = 1.0}));
  EXPECT_EQ(run_of(R"({"zero_optimization": true})", R"({"strategy": {"data": 2}})").strategy.zero, 1);
  const config::Run bare = run_of(R"({"zero_optimization": true})", R"({"strategy": {"data": 2}})");
  EXPECT_EQ(bare.origin("strategy.zero").text, "ds.json:1:23 zero_optimization");
  EXPECT_TRUE(says(deepspeed_warning(run_of(R"({"zero_optimization": true})")), "one data rank holds everything"));
  EXPECT_EQ(run_of(R"({"zero_optimization": false})", R"({"strategy": {"data": 2}})").strategy.zero, 0);
  EXPECT_EQ(run_of(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})").optimizer.rule->name, "adam");
  EXPECT_EQ(run_of(R"({"optimizer": {"type": "SGD", "params": {"lr": 1, "momentum": 0.9}}})").optimizer.rule->name, "momentum");
}

TEST(DeepSpeed, PartitionedActivationsAreSplitBetweenTensorRanks) {
  const std::string_view keys = R"({"activation_checkpointing": {"partition_activations": true}})";
  const config::Run run = run_of(keys, R"({"strategy": {"tensor": 2}})");
  EXPECT_TRUE(run.strategy.split_activations);
  EXPECT_EQ(run.strategy.recompute, strategy::Recompute::full);
  EXPECT_EQ(strategy::reasons_against(run.strategy, 1), std::vector<std::string>{});
  const config::Run alone = run_of(keys);
  EXPECT_FALSE(alone.strategy.split_activations);
  EXPECT_EQ(alone.strategy.recompute, strategy::Recompute::full);
  EXPECT_TRUE(says(explain(alone), "the one tensor rank keeps its activations whole"));
  const config::Run rows = run_of(keys, R"({"strategy": {"tensor": 2, "sequence_parallel": true}})");
  EXPECT_EQ(strategy::reasons_against(rows.strategy, 1), std::vector<std::string>{});
  EXPECT_TRUE(run_of(R"({"activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true, "number_checkpoints": 2}})",
                     R"({"strategy": {"tensor": 2}})")
                  .strategy.split_activations);
  EXPECT_FALSE(run_of(R"({"activation_checkpointing": {"partition_activations": false}})", R"({"strategy": {"tensor": 2}})")
                   .strategy.split_activations);
  EXPECT_TRUE(says(deepspeed_warning(run_of(keys, R"({"strategy": "auto"})")), "the planner chooses"));
}

TEST(DeepSpeed, WeightsLeaveTheDeviceWithStage3Alone) {
  const auto with = [](std::string_view stage, std::string_view more, std::string_view file = R"({"strategy": {"data": 2}})") {
    return run_of(fmt::format(R"({{"zero_optimization": {{"stage": {}, {}}}}})", stage, more), file);
  };
  const std::string_view cpu = R"("offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"})";
  for (std::string_view stage : {"0", "1", "2"}) {
    const config::Run run = with(stage, cpu);
    EXPECT_EQ(run.strategy.offload.params, strategy::TierShare{}) << stage;
    EXPECT_EQ(run.strategy.offload.optimizer, (strategy::TierShare{.host = 1.0})) << stage;
    EXPECT_TRUE(says(deepspeed_warning(run), "weights leave the device with stage 3 alone")) << deepspeed_warning(run);
    EXPECT_EQ(strategy::reasons_against(run.strategy, 1), std::vector<std::string>{}) << stage;
  }
  EXPECT_EQ(deepspeed_warning(with("2", R"("offload_param": {"device": "none", "nvme_path": "/a"})")), "");
  EXPECT_EQ(with("2", R"("offload_param": {"device": "nvme", "nvme_path": "/a"})").limits.disk_path, strategy::Limits{}.disk_path);
  EXPECT_TRUE(says(deepspeed_warning(with("1", R"("cpu_offload_param": true)")), "stage 3 alone"));
  EXPECT_EQ(with("3", cpu).strategy.offload.params, (strategy::TierShare{.host = 1.0}));
  EXPECT_EQ(deepspeed_warning(with("3", cpu)), "");
  EXPECT_EQ(with("3", cpu, "{}").strategy.offload.params, (strategy::TierShare{.host = 1.0}));  // one rank, all of them
  EXPECT_EQ(with("\"auto\"", cpu, R"({"strategy": {"data": 2, "zero": 3}})").strategy.offload.params, (strategy::TierShare{.host = 1.0}));
}

// Legal in DeepSpeed, where the device updates weights that live elsewhere.
TEST(DeepSpeed, StateIsAsFarAwayAsTheWeightsItUpdates) {
  const auto with = [](std::string_view more, std::string_view file = R"({"strategy": {"data": 2}})") {
    return run_of(fmt::format(R"({{"zero_optimization": {{"stage": 3, {}}}}})", more), file);
  };
  struct Case {
    std::string_view keys;
    strategy::TierShare state;
  };
  for (const Case& c :
       {Case{R"("offload_param": {"device": "cpu"})", {.host = 1.0}}, Case{R"("cpu_offload_param": true)", {.host = 1.0}},
        Case{R"("offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "none"})", {.host = 1.0}},
        Case{R"("offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "cpu"})", {.disk = 1.0}},
        Case{R"("offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu", "ratio": 0.3})", {.host = 1.0}},
        Case{R"("offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme", "ratio": 0.3})", {.disk = 1.0}}}) {
    const config::Run run = with(c.keys);
    EXPECT_EQ(run.strategy.offload.optimizer, c.state) << c.keys;
    EXPECT_EQ(strategy::reasons_against(run.strategy, 1), std::vector<std::string>{}) << c.keys;
    EXPECT_TRUE(says(deepspeed_warning(run), "cannot be nearer than they are")) << deepspeed_warning(run);
    EXPECT_EQ(parse_run(base::write_json(to_json(run)), "resolved.json"), run);
  }
  EXPECT_EQ(with(R"("offload_optimizer": {"device": "cpu", "ratio": 0.25})").strategy.offload.optimizer,
            (strategy::TierShare{.host = 0.25}));
  // What the run file says is not changed; the plan refuses it with its reason.
  const config::Run own = with(R"("offload_param": {"device": "cpu"})", R"({"strategy": {"data": 2, "offload": {"optimizer": "none"}}})");
  EXPECT_EQ(own.strategy.offload.optimizer, strategy::TierShare{});
  EXPECT_EQ(strategy::reasons_against(own.strategy, 1).size(), 1u);
}

TEST(DeepSpeed, MicsGroupsAreZeroGroups) {
  const auto with = [](std::string_view stage, std::string_view size, std::string_view file = R"({"strategy": {"data": 8}})") {
    return run_of(fmt::format(R"({{"zero_optimization": {{"stage": {}, "mics_shard_size": {}}}}})", stage, size), file);
  };
  EXPECT_EQ(with("3", "4").strategy.zero_group, 4);
  EXPECT_EQ(strategy::reasons_against(with("3", "4").strategy, 1), std::vector<std::string>{});
  EXPECT_EQ(strategy::reasons_against(with("3", "8").strategy, 1), std::vector<std::string>{});
  EXPECT_EQ(deepspeed_warning(with("3", "4")), "");
  EXPECT_EQ(with("3", "-1").strategy.zero_group, 0);
  EXPECT_EQ(deepspeed_warning(with("3", "-1")), "");
  EXPECT_EQ(with("2", "4").strategy.zero_group, 0);
  EXPECT_TRUE(says(deepspeed_warning(with("2", "4")), "it belongs to stage 3"));
  EXPECT_TRUE(says(deepspeed_warning(with("3", "4", "{}")), "one data rank is one group"));
  EXPECT_NE(message_of([&] { with("3", "2.5"); }), "no error");
  // Other tensors are shared out otherwise there, so it is not set.
  const config::Run hpz = run_of(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}})", R"({"strategy": {"data": 8}})");
  EXPECT_EQ(hpz.strategy.zero_group, 0);
  EXPECT_TRUE(says(deepspeed_warning(hpz), "`strategy.zero_group`")) << deepspeed_warning(hpz);
}

TEST(DeepSpeed, WordsInTheWrongPlaceAndWordsOfOthers) {
  const std::string warning =
      deepspeed_warning(run_of(R"({"offload_optimizer": {"device": "cpu"}, "lr": 1, "enabled": true, "fp8": {"enabled": true},
    "timers": {"throughput": {"enabled": true}}, "allgather_size": 2e8})"));
  EXPECT_TRUE(says(warning, "did you mean \"zero_optimization.offload_optimizer\"?")) << warning;
  EXPECT_TRUE(says(warning, "did you mean \"optimizer.params.lr\"?")) << warning;
  EXPECT_TRUE(says(warning, "\n  enabled = true (ds.json:1:62): DeepSpeed knows no such key, so it is passed over\n")) << warning;
  EXPECT_TRUE(says(warning, "`\"precision\": \"fp8\"` of the run file")) << warning;
  EXPECT_TRUE(says(warning, "allgather_size = 200000000.0 (ds.json:2:68): weights are gathered block by block")) << warning;
  EXPECT_FALSE(says(warning, "timers")) << warning;
  EXPECT_EQ(error_of(R"({"zero_optimization": {"train_batch_size": 2}})"),
            "ds.json:1:44: found the unknown key \"zero_optimization.train_batch_size\", did you mean \"train_batch_size\"?");
  EXPECT_EQ(parse_run(R"({"fp8": {"history": 16}, "precision": "fp8"})", "run.json").amax_history, 16);  // the run file's own
}

// Two keys for one setting: the one that does not count says so.
TEST(DeepSpeed, WhereTwoKeysDifferTheOneThatIsNotUsedIsNamed) {
  const auto disks = [](std::string_view params_device, std::string_view params_path) {
    return run_of(fmt::format(R"({{"zero_optimization": {{"stage": 3, "offload_optimizer": {{"device": "nvme", "nvme_path": "/a"}},
                                 "offload_param": {{"device": "{}", "nvme_path": "{}"}}}}}})",
                              params_device, params_path),
                  R"({"strategy": {"data": 2}})");
  };
  EXPECT_EQ(disks("nvme", "/b").limits.disk_path, "/b");
  EXPECT_TRUE(
      says(deepspeed_warning(disks("nvme", "/b")), "offload_optimizer.nvme_path = \"/a\" (ds.json:1:89): not used: there is one disk"));
  EXPECT_EQ(deepspeed_warning(disks("nvme", "/a")), "");
  EXPECT_EQ(disks("cpu", "/b").limits.disk_path, "/a");
  EXPECT_EQ(deepspeed_warning(disks("cpu", "/b")), "");
  const auto old = [](std::string_view flag, std::string_view device) {
    return deepspeed_warning(run_of(
        fmt::format(R"({{"zero_optimization": {{"stage": 2, "cpu_offload": {}, "offload_optimizer": {{"device": "{}"}}}}}})", flag, device),
        R"({"strategy": {"data": 2}})"));
  };
  EXPECT_EQ(old("true", "cpu"), "");
  EXPECT_EQ(old("false", "none"), "");
  EXPECT_TRUE(says(old("true", "none"), "cpu_offload = true (ds.json:1:51): not used: zero_optimization.offload_optimizer.device says it"));
}

TEST(DeepSpeed, ABucketOfNothingHoldsOneGradient) {
  EXPECT_EQ(run_of(R"({"zero_optimization": {"reduce_bucket_size": 0}})").strategy.bucket, base::Bytes{4});
}

TEST(DeepSpeed, EveryRowIsShownByExplain) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    EXPECT_FALSE(key.text.empty()) << key.path;
    EXPECT_EQ(canonical_deepspeed_path(key.path), key.path);
    if (key.usual.empty()) continue;
    EXPECT_NO_THROW(base::parse_json(key.usual, "usual")) << key.path;
  }
  const config::Run run = run_of(R"({"gradient_clipping": 0.5, "dump_state": true})");
  const std::string text = explain(run);
  EXPECT_TRUE(says(text, "ds.json:1:23 gradient_clipping")) << text;
  EXPECT_TRUE(says(text, "! dump_state"));
  EXPECT_TRUE(explain_json(run).at("deepspeed").at("keys").at("dump_state").at("differs").as_bool());
}

TEST(DeepSpeed, TheResolvedRunNeedsNoDeepSpeedFile) {
  const config::Run run = run_of(R"({"train_batch_size": 32, "gradient_accumulation_steps": 4, "fp16": {"enabled": true, "loss_scale": 0.5},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_min_lr": 1e-4, "warmup_max_lr": 1e-3}},
      "zero_optimization": {"stage": 2, "reduce_bucket_size": 12345.6}})",
                                 R"({"strategy": {"data": 2}})");
  EXPECT_EQ(parse_run(base::write_json(to_json(run)), "resolved.json"), run);
  EXPECT_EQ(run.lr_schedule.warmup_from, 0.1);
}

}  // namespace
}  // namespace plimsoll::config
