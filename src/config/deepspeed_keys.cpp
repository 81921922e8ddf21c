#include "config/deepspeed_keys.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "config/fields.h"
#include "ops/optim/rules.h"

namespace plimsoll::config {

namespace {

constexpr std::string_view kOwnDisk = "the disk tier chooses the size and number of its own requests";
constexpr std::string_view kGathers = "weights are gathered block by block, `strategy.prefetch` blocks ahead";
constexpr std::string_view kArena = "every buffer has its fixed place in one arena";
constexpr std::string_view kAfterCycle = "the learning rate stays at cycle_min_lr after the cycle";
constexpr std::string_view kOneBit = "1-bit compression does not exist here; gradients are sent whole";

constexpr DeepSpeedKey kKeys[] = {
    {"train_batch_size", Takes::count, "", Effect::mapped, "batch.global"},
    {"train_micro_batch_size_per_gpu", Takes::count, "", Effect::mapped, "batch.micro"},
    {"gradient_accumulation_steps", Takes::count, "", Effect::mapped, "batch.global / (batch.micro x strategy.data)"},
    {"managed_gradient_accumulation", Takes::flag, "true", Effect::missing, "micro-batches are always counted for you"},

    {"optimizer.type", Takes::text, "", Effect::mapped, "optimizer.type"},
    {"optimizer.params.lr", Takes::number, "", Effect::mapped, "optimizer.lr"},
    {"optimizer.params.betas", Takes::list, "", Effect::mapped, "optimizer.betas"},
    {"optimizer.params.weight_decay", Takes::number, "", Effect::mapped, "optimizer.weight_decay"},
    {"optimizer.params.centered", Takes::flag, "false", Effect::refused, "leave it out"},
    {"optimizer.params.max_grad_norm", Takes::number, "", Effect::mapped, "optimizer.clip, where gradient_clipping is not given"},
    {"optimizer.params.adam_w_mode", Takes::flag, "", Effect::mapped, "optimizer.type"},
    {"optimizer.params.torch_adam", Takes::flag, "", Effect::harmless, "there is one Adam for every device"},
    {"optimizer.params.fused", Takes::flag, "", Effect::harmless, "the update is one pass over each tensor"},
    {"optimizer.params.bias_correction", Takes::flag, "true", Effect::missing, "Adam's averages are always corrected"},
    {"optimizer.params.amsgrad", Takes::flag, "false", Effect::refused, "leave it out"},
    {"optimizer.params.nesterov", Takes::flag, "false", Effect::refused, "leave it out"},
    {"optimizer.params.dampening", Takes::number, "0", Effect::refused, "leave it out"},
    {"optimizer.params.freeze_step", Takes::count, "", Effect::missing, kOneBit},
    {"optimizer.params.var_freeze_step", Takes::count, "", Effect::missing, kOneBit},
    {"optimizer.params.var_update_scaler", Takes::number, "", Effect::missing, kOneBit},
    {"optimizer.params.local_step_scaler", Takes::number, "", Effect::missing, kOneBit},
    {"optimizer.params.local_step_clipper", Takes::number, "", Effect::missing, kOneBit},
    {"optimizer.params.cuda_aware", Takes::flag, "false", Effect::missing, kOneBit},
    {"optimizer.params.comm_backend_name", Takes::text, "", Effect::missing, kOneBit},
    {"optimizer.params.coeff_beta", Takes::number, "0.9", Effect::missing, kOneBit},
    {"optimizer.params.factor_max", Takes::number, "4", Effect::missing, kOneBit},
    {"optimizer.params.factor_min", Takes::number, "0.5", Effect::missing, kOneBit},
    {"optimizer.params.factor_threshold", Takes::number, "0.1", Effect::missing, kOneBit},
    {"optimizer.legacy_fusion", Takes::flag, "", Effect::harmless, "the update is one pass over each tensor"},

    {"scheduler.type", Takes::text, "", Effect::mapped, "lr_schedule.type"},
    {"scheduler.params.warmup_min_lr", Takes::number, "", Effect::mapped, "lr_schedule.warmup_from"},
    {"scheduler.params.warmup_max_lr", Takes::number, "", Effect::mapped, "optimizer.lr"},
    {"scheduler.params.warmup_num_steps", Takes::count, "", Effect::mapped, "lr_schedule.warmup"},
    {"scheduler.params.warmup_type", Takes::text, "", Effect::mapped, "lr_schedule.warmup_shape"},
    {"scheduler.params.warmup_min_ratio", Takes::number, "", Effect::mapped, "lr_schedule.warmup_from"},
    {"scheduler.params.cos_min_ratio", Takes::number, "", Effect::mapped, "lr_schedule.min_ratio"},
    {"scheduler.params.total_num_steps", Takes::count, "", Effect::mapped, "lr_schedule.end"},
    {"scheduler.params.cycle_min_lr", Takes::number, "", Effect::mapped, "lr_schedule.points"},
    {"scheduler.params.cycle_max_lr", Takes::number, "", Effect::mapped, "optimizer.lr"},
    {"scheduler.params.cycle_first_step_size", Takes::count, "", Effect::mapped, "lr_schedule.points"},
    {"scheduler.params.cycle_second_step_size", Takes::count, "", Effect::mapped, "lr_schedule.points"},
    {"scheduler.params.cycle_first_stair_count", Takes::count, "0", Effect::missing, "the learning rate changes at every step"},
    {"scheduler.params.cycle_second_stair_count", Takes::anything, "0", Effect::missing, "the learning rate changes at every step"},
    {"scheduler.params.decay_step_size", Takes::count, "0", Effect::missing, kAfterCycle},
    {"scheduler.params.decay_lr_rate", Takes::number, "0", Effect::missing, kAfterCycle},
    {"scheduler.params.cycle_momentum", Takes::flag, "false", Effect::missing, "momentum stays as `optimizer` says"},
    {"scheduler.params.cycle_min_mom", Takes::number, "", Effect::missing, "momentum stays as `optimizer` says"},
    {"scheduler.params.cycle_max_mom", Takes::number, "", Effect::missing, "momentum stays as `optimizer` says"},
    {"scheduler.params.decay_mom_rate", Takes::number, "0", Effect::missing, "momentum stays as `optimizer` says"},
    {"scheduler.params.lr_range_test_min_lr", Takes::number, "", Effect::mapped, "lr_schedule.points"},
    {"scheduler.params.lr_range_test_step_size", Takes::count, "", Effect::mapped, "lr_schedule.points"},
    {"scheduler.params.lr_range_test_step_rate", Takes::number, "", Effect::mapped, "lr_schedule.points"},
    {"scheduler.params.lr_range_test_staircase", Takes::flag, "false", Effect::missing, "the learning rate changes at every step"},
    {"scheduler.params.last_batch_iteration", Takes::number, "", Effect::harmless, "a resumed run knows its step"},

    {"gradient_clipping", Takes::number, "", Effect::mapped, "optimizer.clip"},
    {"prescale_gradients", Takes::flag, "", Effect::harmless, "losses are divided before the backward pass, so sums cannot overflow later"},
    {"gradient_predivide_factor", Takes::number, "", Effect::harmless, "losses are divided before the backward pass"},
    {"gradient_allreduce_op", Takes::text, "\"mean\"", Effect::missing, "gradients are means over the targets of the whole batch"},
    {"communication_data_type", Takes::text, "", Effect::mapped, "communication.gradients with bf16; warned of with fp16"},
    {"seq_parallel_communication_data_type", Takes::text, "\"fp32\"", Effect::missing, "sequences are not split between ranks"},
    {"sparse_gradients", Takes::flag, "false", Effect::missing, "the embedding's gradient is sent whole"},
    {"disable_allgather", Takes::flag, "false", Effect::missing, "weights are gathered where the plan says so"},
    {"fp32_allreduce", Takes::flag, "false", Effect::missing, "gradients are reduced in the type that the plan keeps them in"},

    {"fp16.enabled", Takes::flag, "", Effect::mapped, "precision"},
    {"fp16.auto_cast", Takes::flag, "", Effect::harmless, "inputs are token numbers"},
    {"fp16.loss_scale", Takes::number, "", Effect::mapped, "loss_scale.initial and loss_scale.window"},
    {"fp16.initial_scale_power", Takes::number, "", Effect::mapped, "loss_scale.initial"},
    {"fp16.loss_scale_window", Takes::count, "", Effect::mapped, "loss_scale.window"},
    {"fp16.hysteresis", Takes::count, "", Effect::mapped, "loss_scale.hysteresis"},
    {"fp16.consecutive_hysteresis", Takes::flag, "false", Effect::missing, "overflows are counted until the scale is halved"},
    {"fp16.min_loss_scale", Takes::number, "", Effect::mapped, "loss_scale.min"},
    {"fp16.fp16_master_weights_and_grads", Takes::flag, "false", Effect::missing, "master weights stay f32"},
    {"fp16.opt_level", Takes::text, "", Effect::harmless, "weights are fp16 with f32 masters"},
    {"bf16.enabled", Takes::flag, "", Effect::mapped, "precision"},
    {"bf16.immediate_grad_update", Takes::flag, "", Effect::harmless, "gradients are added up as they appear"},
    {"bf16.check_grad_overflow", Takes::flag, "true", Effect::missing, "a step whose gradient is not finite is always noticed"},
    {"bf16.bf16_master_weights_and_grads", Takes::flag, "", Effect::mapped, "optimizer.master"},
    {"bf16.bf16_optimizer_states", Takes::flag, "", Effect::mapped, "optimizer.moments"},
    {"bf16.loss_scale", Takes::number, "0", Effect::missing, "bf16 needs no loss scale"},
    {"bf16.loss_scale_window", Takes::count, "", Effect::missing, "bf16 needs no loss scale"},
    {"bf16.initial_scale_power", Takes::number, "", Effect::missing, "bf16 needs no loss scale"},
    {"bf16.hysteresis", Takes::count, "", Effect::missing, "bf16 needs no loss scale"},
    {"bf16.min_loss_scale", Takes::number, "", Effect::missing, "bf16 needs no loss scale"},
    {"torch_autocast.enabled", Takes::flag, "", Effect::mapped, "precision"},
    {"torch_autocast.dtype", Takes::text, "", Effect::mapped, "precision"},
    {"torch_autocast.lower_precision_safe_modules", Takes::list, "", Effect::missing, "every matrix product is in the precision"},
    {"amp.enabled", Takes::flag, "", Effect::mapped, "precision"},
    {"amp.opt_level", Takes::text, "", Effect::harmless, "weights are fp16 with f32 masters"},
    {"amp.loss_scale", Takes::anything, "", Effect::missing, "loss_scale of the run file applies"},
    {"fp8.enabled", Takes::flag, "false", Effect::missing, "DeepSpeed has no such block; `\"precision\": \"fp8\"` of the run file is that"},
    {"data_types.grad_accum_dtype", Takes::text, "\"fp32\"", Effect::missing, "gradients are added up in f32"},
    {"data_types.param_dtype", Takes::text, "null", Effect::missing, "`precision` says the type of weights"},
    {"data_types.buffer_dtype", Takes::text, "null", Effect::missing, "`precision` says the type of buffers"},

    {"zero_optimization.stage", Takes::count, "", Effect::mapped, "strategy.zero"},
    {"zero_optimization.contiguous_gradients", Takes::flag, "", Effect::harmless, kArena},
    {"zero_optimization.reduce_scatter", Takes::flag, "true", Effect::missing, "gradients that are shared out are reduce-scattered"},
    {"zero_optimization.allgather_partitions", Takes::flag, "true", Effect::missing, "weights are all-gathered"},
    {"zero_optimization.reduce_bucket_size", Takes::number, "", Effect::mapped, "strategy.bucket"},
    {"zero_optimization.allgather_bucket_size", Takes::number, "5e8", Effect::missing, kGathers},
    {"zero_optimization.overlap_comm", Takes::flag, "true", Effect::missing, "the plan overlaps communication wherever it can"},
    {"zero_optimization.round_robin_gradients", Takes::flag, "", Effect::harmless, kArena},
    {"zero_optimization.ignore_unused_parameters", Takes::flag, "", Effect::harmless, "every parameter is used, or frozen"},
    {"zero_optimization.find_unused_parameters", Takes::flag, "", Effect::harmless, "every parameter is used, or frozen"},
    {"zero_optimization.load_from_fp32_weights", Takes::flag, "true", Effect::missing, "master weights are read back as they were"},
    {"zero_optimization.elastic_checkpoint", Takes::flag, "", Effect::harmless,
     "a checkpoint holds whole tensors, for any number of ranks"},
    {"zero_optimization.legacy_stage1", Takes::flag, "", Effect::harmless, "there is one stage 1"},
    {"zero_optimization.use_multi_rank_bucket_allreduce", Takes::flag, "", Effect::harmless, "buckets belong to the plan"},
    {"zero_optimization.compute_grad_norm", Takes::flag, "true", Effect::missing, "the norm is always computed"},
    {"zero_optimization.parameter_alignment", Takes::flag, "", Effect::harmless, kArena},
    {"zero_optimization.sub_group_size", Takes::number, "1e9", Effect::missing, "the optimizer works tensor by tensor"},
    {"zero_optimization.stage3_max_live_parameters", Takes::number, "1e9", Effect::missing,
     "gathered weights are let go after their block, or kept with `strategy.keep_params`"},
    {"zero_optimization.stage3_max_reuse_distance", Takes::number, "1e9", Effect::missing,
     "gathered weights are let go after their block, or kept with `strategy.keep_params`"},
    {"zero_optimization.stage3_prefetch_bucket_size", Takes::number, "5e7", Effect::missing, kGathers},
    {"zero_optimization.stage3_param_persistence_threshold", Takes::number, "1e5", Effect::missing, "small tensors are shared out too"},
    {"zero_optimization.stage3_model_persistence_threshold", Takes::number, "9223372036854775807", Effect::missing,
     "small tensors are shared out too"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", Takes::flag, "", Effect::harmless,
     "a checkpoint always holds whole tensors"},
    {"zero_optimization.stage3_module_granularity_threshold", Takes::number, "0", Effect::missing, kGathers},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", Takes::flag, "false", Effect::missing, kGathers},
    {"zero_optimization.stage3_allgather_sequential", Takes::flag, "false", Effect::missing, kGathers},
    {"zero_optimization.zero_hpz_partition_size", Takes::count, "1", Effect::missing,
     "weights get no second shards inside a machine; `strategy.zero_group` gathers them inside a group too, but keeps gradients and "
     "optimizer state there as well, which takes more memory"},
    {"zero_optimization.zero_quantized_weights", Takes::flag, "", Effect::mapped, "communication.weights"},
    {"zero_optimization.zero_quantized_nontrainable_weights", Takes::flag, "false", Effect::missing, "weights are gathered exactly"},
    {"zero_optimization.zero_quantized_gradients", Takes::flag, "false", Effect::missing,
     "they are reduced exactly; there is no exchange in two levels of 4 bits, but `communication.gradients` has `int4` and `int8`"},
    {"zero_optimization.zeropp_loco_param", Takes::anything, "null", Effect::missing, "gradients are reduced exactly"},
    {"zero_optimization.mics_shard_size", Takes::number, "", Effect::mapped, "strategy.zero_group, with stage 3"},
    {"zero_optimization.mics_hierarchical_params_gather", Takes::flag, "false", Effect::missing, "a group gathers its weights in one go"},
    {"zero_optimization.memory_efficient_linear", Takes::flag, "", Effect::harmless, "products keep nothing twice"},
    {"zero_optimization.pipeline_loading_checkpoint", Takes::flag, "", Effect::harmless, "ranks read only what is theirs"},
    {"zero_optimization.override_module_apply", Takes::flag, "", Effect::harmless, "there are no modules to override"},
    {"zero_optimization.log_trace_cache_warnings", Takes::flag, "", Effect::harmless, "the plan is fixed before the first step"},
    {"zero_optimization.enable_sanity_checks", Takes::flag, "", Effect::harmless, "every plan is verified"},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", Takes::flag, "", Effect::harmless,
     "its momentum lies where `strategy.offload.optimizer` says"},
    {"zero_optimization.leaf_module", Takes::anything, "", Effect::harmless, "the plan knows every tensor's use"},
    {"zero_optimization.zenflow", Takes::anything, "null", Effect::missing, "every gradient is used in its own step"},
    {"zero_optimization.offload_optimizer.device", Takes::text, "", Effect::mapped, "strategy.offload.optimizer"},
    {"zero_optimization.offload_optimizer.nvme_path", Takes::text, "", Effect::mapped, "limits.disk_path"},
    {"zero_optimization.offload_optimizer.ratio", Takes::number, "", Effect::mapped, "strategy.offload.optimizer"},
    {"zero_optimization.offload_optimizer.buffer_count", Takes::count, "4", Effect::missing, "the plan places its buffers"},
    {"zero_optimization.offload_optimizer.pin_memory", Takes::flag, "true", Effect::missing,
     "the host tier is pinned where a GPU reads it"},
    {"zero_optimization.offload_optimizer.pipeline_read", Takes::flag, "", Effect::harmless, "copies run ahead by `strategy.prefetch`"},
    {"zero_optimization.offload_optimizer.pipeline_write", Takes::flag, "", Effect::harmless, "copies run beside the update"},
    {"zero_optimization.offload_optimizer.fast_init", Takes::flag, "", Effect::harmless, "state is made where it lives"},
    {"zero_optimization.offload_optimizer.super_offload", Takes::flag, "false", Effect::missing, "the plan decides what runs where"},
    {"zero_optimization.offload_optimizer.cpuadam_cores_perc", Takes::number, "", Effect::harmless,
     "`threads` says how many cores are used"},
    {"zero_optimization.offload_param.device", Takes::text, "", Effect::mapped,
     "strategy.offload.params with stage 3, and strategy.offload.optimizer where that is nearer"},
    {"zero_optimization.offload_param.nvme_path", Takes::text, "", Effect::mapped, "limits.disk_path"},
    {"zero_optimization.offload_param.buffer_count", Takes::count, "5", Effect::missing, "the plan places its buffers"},
    {"zero_optimization.offload_param.buffer_size", Takes::number, "1e8", Effect::missing, "the plan places its buffers"},
    {"zero_optimization.offload_param.max_in_cpu", Takes::number, "1e9", Effect::missing, "`limits.host` bounds the host tier"},
    {"zero_optimization.offload_param.pin_memory", Takes::flag, "true", Effect::missing, "the host tier is pinned where a GPU reads it"},
    {"zero_optimization.cpu_offload", Takes::flag, "", Effect::mapped,
     "strategy.offload.optimizer (a deprecated key: use offload_optimizer)"},
    {"zero_optimization.cpu_offload_param", Takes::flag, "", Effect::mapped,
     "strategy.offload.params with stage 3 (a deprecated key: use offload_param)"},
    {"zero_optimization.cpu_offload_use_pin_memory", Takes::flag, "", Effect::harmless, "the host tier is pinned where a GPU reads it"},
    {"allgather_size", Takes::number, "5e8", Effect::missing, kGathers},  // of `"zero_optimization": true`
    {"zero_allow_untested_optimizer", Takes::flag, "", Effect::harmless, "every optimizer here works with every stage"},
    {"zero_force_ds_cpu_optimizer", Takes::flag, "", Effect::harmless, "there is one optimizer for every device"},

    {"aio.block_size", Takes::number, "1048576", Effect::missing, kOwnDisk},
    {"aio.queue_depth", Takes::count, "8", Effect::missing, kOwnDisk},
    {"aio.intra_op_parallelism", Takes::count, "1", Effect::missing, kOwnDisk},
    {"aio.single_submit", Takes::flag, "false", Effect::missing, kOwnDisk},
    {"aio.overlap_events", Takes::flag, "true", Effect::missing, kOwnDisk},
    {"aio.use_gds", Takes::flag, "false", Effect::missing, kOwnDisk},

    {"activation_checkpointing.partition_activations", Takes::flag, "", Effect::mapped,
     "strategy.recompute and, with several tensor ranks, strategy.split_activations"},
    {"activation_checkpointing.cpu_checkpointing", Takes::flag, "", Effect::mapped, "strategy.recompute and strategy.offload.activations"},
    {"activation_checkpointing.number_checkpoints", Takes::anything, "", Effect::mapped, "strategy.recompute"},
    {"activation_checkpointing.contiguous_memory_optimization", Takes::flag, "", Effect::harmless, kArena},
    {"activation_checkpointing.synchronize_checkpoint_boundary", Takes::flag, "false", Effect::missing, "a step never waits for the host"},
    {"activation_checkpointing.profile", Takes::flag, "false", Effect::missing, "`plimsoll train --trace` times every call"},
    {"activation_checkpointing.use_reentrant", Takes::flag, "", Effect::harmless, "recomputation is part of the plan"},

    {"tensor_parallel.autotp_size", Takes::count, "", Effect::mapped, "strategy.tensor"},
    {"tensor_parallel.tp_size", Takes::count, "", Effect::mapped, "strategy.tensor"},
    {"tensor_parallel.tp", Takes::anything, "", Effect::missing, "`strategy.tensor` says the degree"},
    {"tensor_parallel.preset_model", Takes::text, "", Effect::harmless, "the model itself says how it is split"},
    {"tensor_parallel.partition_config", Takes::anything, "null", Effect::missing, "the model itself says how it is split"},
    {"sequence_parallel_size", Takes::count, "1", Effect::missing, "sequences are not split over ranks of their own"},
    {"expert_parallel.enabled", Takes::flag, "false", Effect::refused, "the models here have no experts"},
    {"expert_parallel.autoep_size", Takes::count, "1", Effect::missing, "the models here have no experts"},
    {"use_data_before_expert_parallelism", Takes::flag, "false", Effect::missing, "the models here have no experts"},
    {"pipeline.stages", Takes::anything, "", Effect::mapped, "strategy.pipe"},
    {"pipeline.partition", Takes::text, "", Effect::missing, "`strategy.stages` deals out the blocks"},
    {"pipeline.seed_layers", Takes::flag, "", Effect::harmless, "initial weights depend on their name, not on their rank"},
    {"pipeline.activation_checkpoint_interval", Takes::count, "0", Effect::missing, "`strategy.recompute` says what is computed again"},
    {"pipeline.pipe_partitioned", Takes::flag, "", Effect::mapped, "strategy.scatter_boundaries"},
    {"pipeline.grad_partitioned", Takes::flag, "", Effect::missing,
     "gradients go between stages as activations do: `strategy.scatter_boundaries`"},

    {"checkpoint.tag_validation", Takes::text, "", Effect::harmless, "a checkpoint is named by its step and belongs to its run"},
    {"checkpoint.load_universal", Takes::flag, "", Effect::harmless, "every checkpoint loads on any number of ranks"},
    {"checkpoint.use_node_local_storage", Takes::flag, "false", Effect::missing, "checkpoints go to the folder `out`"},
    {"checkpoint.parallel_write.pipeline_stage", Takes::flag, "false", Effect::missing, "the plan decides who writes what"},
    {"checkpoint.async_io", Takes::flag, "", Effect::harmless, "`checkpoint.async` of the run file applies"},
    {"checkpoint.writer", Takes::anything, "null", Effect::missing, "there is one writer"},

    {"autotuning", Takes::anything, "", Effect::missing, "\"strategy\": \"auto\" lets the planner search"},
    {"flops_profiler", Takes::anything, "", Effect::missing, "`plimsoll train --trace` times every call"},
    {"comms_logger", Takes::anything, "", Effect::missing, "`plimsoll train --trace` shows every collective"},
    {"wall_clock_breakdown", Takes::flag, "false", Effect::missing, "`plimsoll train --trace` times every call"},
    {"timers", Takes::anything, "", Effect::harmless, "every step is timed; no device is stopped for it"},
    {"memory_breakdown", Takes::flag, "false", Effect::missing, "the waterline is printed before the first step"},
    {"steps_per_print", Takes::anything, "", Effect::harmless, "progress is shown as time passes, every step is in metrics.jsonl"},
    {"dump_state", Takes::flag, "false", Effect::missing, "`plimsoll explain` shows every setting"},
    {"log_level", Takes::anything, "null", Effect::missing, "there is one level of messages"},
    {"tensorboard", Takes::anything, "", Effect::harmless, "events for TensorBoard are always written to the folder `out`"},
    {"csv_monitor", Takes::anything, "", Effect::harmless, "metrics.jsonl is always written to the folder `out`"},
    {"wandb", Takes::anything, "", Effect::missing, "metrics.jsonl and TensorBoard's events are written; nothing is sent anywhere"},
    {"comet", Takes::anything, "", Effect::missing, "metrics.jsonl and TensorBoard's events are written; nothing is sent anywhere"},
    {"monitor_config", Takes::anything, "", Effect::missing, "metrics.jsonl and TensorBoard's events are written"},
    {"elasticity", Takes::anything, "", Effect::missing, "the batch is the one that is given; a checkpoint loads on any number of ranks"},
    {"nebula", Takes::anything, "", Effect::missing, "checkpoints go to the folder `out`"},
    {"hybrid_engine", Takes::anything, "", Effect::missing, "`plimsoll generate` reads the newest checkpoint"},
    {"compile", Takes::anything, "", Effect::missing, "kernels are compiled ahead of time"},
    {"compression_training", Takes::anything, "", Effect::refused, "leave the block out: weights are trained as they are"},
    {"quantize_training", Takes::anything, "", Effect::refused, "leave the block out: weights are trained as they are"},
    {"weight_quantization", Takes::anything, "", Effect::refused, "leave the block out: weights are trained as they are"},
    {"sparse_attention", Takes::anything, "{\"mode\":\"dense\"}", Effect::refused, "leave the block out: attention is dense"},
    {"data_efficiency", Takes::anything, "", Effect::refused, "leave the block out: samples are drawn once an epoch, at their full length"},
    {"curriculum_learning", Takes::anything, "", Effect::refused, "leave the block out: sequences have one length"},
    {"progressive_layer_drop", Takes::anything, "", Effect::refused, "leave the block out: every layer is used in every step"},
    {"eigenvalue", Takes::anything, "", Effect::missing, "no eigenvalues are computed"},
    {"dataloader_drop_last", Takes::flag, "", Effect::harmless, "every batch is whole; an epoch ends inside one"},
    {"disable_python_gc", Takes::flag, "", Effect::harmless, "there is no Python here"},
    {"vocabulary_size", Takes::anything, "", Effect::harmless, "`model.vocab` says it"},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kAliases{{
    {"bfloat16.", "bf16."},
    {"zero_optimization.aio.", "aio."},  // where transformers' own example has it
    {"aio.thread_count", "aio.intra_op_parallelism"},
    {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
    {"zero_optimization.param_persistence_threshold", "zero_optimization.stage3_param_persistence_threshold"},
    {"zero_optimization.model_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold"},
    {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
    {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
    {"zero_optimization.gather_16bit_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.gather_fp16_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"zero_optimization.module_granularity_threshold", "zero_optimization.stage3_module_granularity_threshold"},
    {"zero_optimization.use_all_reduce_for_fetch_params", "zero_optimization.stage3_use_all_reduce_for_fetch_params"},
    {"zero_optimization.allgather_sequential", "zero_optimization.stage3_allgather_sequential"},
}};

// With the settings of update rules, which have the same names there, behind those that all have.
std::vector<DeepSpeedKey> with_rule_numbers() {
  static std::set<std::string> names;  // what the rows view
  std::vector<DeepSpeedKey> keys;
  for (const DeepSpeedKey& key : kKeys) {
    keys.push_back(key);
    if (key.path != "optimizer.params.weight_decay") continue;
    for (const ops::UpdateRule& rule : ops::update_rules()) {
      for (const ops::RuleNumber& number : rule.numbers) {
        const std::string setting = numbers_key(number.name);
        if (rule.deepspeed.empty() || setting == "optimizer.betas") continue;
        const auto [path, fresh] = names.insert(fmt::format("optimizer.params.{}", number.name));
        if (fresh) keys.push_back({*path, Takes::number, "", Effect::mapped, *names.insert(setting).first});
      }
    }
  }
  return keys;
}

}  // namespace

std::span<const DeepSpeedKey> deepspeed_keys() {
  static const std::vector<DeepSpeedKey> keys = with_rule_numbers();
  return keys;
}

std::string canonical_deepspeed_path(std::string_view path) {
  for (const auto& [alias, meant] : kAliases) {
    if (alias.ends_with('.') && path.starts_with(alias)) return std::string(meant) + std::string(path.substr(alias.size()));
    if (alias.ends_with('.') && path == alias.substr(0, alias.size() - 1)) return std::string(meant.substr(0, meant.size() - 1));
    if (path == alias) return std::string(meant);
  }
  return std::string(path);
}

const DeepSpeedKey* find_deepspeed_key(std::string_view path) {
  const std::span<const DeepSpeedKey> keys = deepspeed_keys();
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const DeepSpeedKey& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

bool is_deepspeed_group(std::string_view path) {
  return std::any_of(deepspeed_keys().begin(), deepspeed_keys().end(), [&](const DeepSpeedKey& key) {
    return key.path.size() > path.size() && key.path.starts_with(path) && key.path[path.size()] == '.';
  });
}

bool is_strict_deepspeed_group(std::string_view path) {
  return path.starts_with("zero_optimization") || path == "fp16" || path == "bf16" || path == "optimizer.params" ||
         path == "scheduler.params";
}

std::vector<std::string> deepspeed_words_below(std::string_view group) {
  std::vector<std::string> words;
  const std::string prefix = group.empty() ? std::string() : std::string(group) + ".";
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    if (!key.path.starts_with(prefix)) continue;
    const std::string_view rest = key.path.substr(prefix.size());
    std::string word(rest.substr(0, rest.find('.')));
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

std::string deepspeed_path_of_word(std::string_view word) {
  std::string found;
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    for (std::size_t start = 0; start != std::string_view::npos;) {
      const std::size_t end = key.path.find('.', start);
      if (key.path.substr(start, end - start) == word) {
        const std::string_view path = key.path.substr(0, end);
        if (!found.empty() && found != path) return "";
        found = path;
      }
      start = end == std::string_view::npos ? end : end + 1;
    }
  }
  return found;
}

bool is_deepspeed_top_key(std::string_view key) {
  if (key == "optimizer" || key == "checkpoint" || key == "fp8") return false;
  const std::string canonical = canonical_deepspeed_path(key);
  return find_deepspeed_key(canonical) != nullptr || is_deepspeed_group(canonical);
}

}  // namespace plimsoll::config
