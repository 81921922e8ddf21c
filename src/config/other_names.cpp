#include "config/other_names.h"

#include <algorithm>
#include <iterator>

namespace plimsoll::config {

namespace {

constexpr std::string_view kAddedUp = "gradients of batch.global / (batch.micro x strategy.data) micro-batches are added up";

constexpr OtherName kNames[] = {
    {"model_name", "model.preset"},
    {"model_name_or_path", "model.path"},
    {"pretrained_model_name_or_path", "model.path"},
    {"model_type", "model.family"},
    {"num_layers", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"hidden_size", "model.width"},
    {"hidden_dim", "model.width"},
    {"embed_dim", "model.width"},
    {"n_embd", "model.width"},
    {"d_model", "model.width"},
    {"num_attention_heads", "model.heads"},
    {"num_heads", "model.heads"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"num_kv_heads", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"num_query_groups", "model.kv_heads"},
    {"intermediate_size", "model.ffn"},
    {"ffn_hidden_size", "model.ffn"},
    {"n_inner", "model.ffn"},
    {"d_ff", "model.ffn"},
    {"vocab_size", "model.vocab"},
    {"max_position_embeddings", "model.context"},
    {"n_positions", "model.context"},
    {"n_ctx", "model.context"},

    {"dataset", "data.train"},
    {"data_path", "data.train"},
    {"train_data", "data.train"},
    {"train_file", "data.train"},
    {"valid_file", "data.valid"},
    {"validation_file", "data.valid"},
    {"tokenizer_name", "data.tokenizer"},
    {"tokenizer_path", "data.tokenizer"},
    {"tokenizer_model", "data.tokenizer"},

    {"batch_size", "batch.global"},
    {"global_batch_size", "batch.global"},
    {"micro_batch_size", "batch.micro"},
    {"per_device_train_batch_size", "batch.micro"},
    {"gradient_accumulation_steps", "batch.micro", kAddedUp},
    {"grad_accum_steps", "batch.micro", kAddedUp},
    {"accumulate_grad_batches", "batch.micro", kAddedUp},
    {"block_size", "batch.sequence"},
    {"max_length", "batch.sequence"},
    {"max_seq_len", "batch.sequence"},
    {"max_seq_length", "batch.sequence"},
    {"seq_len", "batch.sequence"},
    {"seq_length", "batch.sequence"},
    {"sequence_length", "batch.sequence"},

    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    {"adam_eps", "optimizer.eps"},
    {"adam_epsilon", "optimizer.eps"},
    {"max_grad_norm", "optimizer.clip"},
    {"grad_clip", "optimizer.clip"},
    {"clip_grad", "optimizer.clip"},
    {"gradient_clip_val", "optimizer.clip"},
    {"lr_scheduler", "lr_schedule.type"},
    {"lr_scheduler_type", "lr_schedule.type"},
    {"lr_decay_style", "lr_schedule.type"},
    {"warmup_steps", "lr_schedule.warmup"},
    {"warmup_iters", "lr_schedule.warmup"},
    {"num_warmup_steps", "lr_schedule.warmup"},
    {"lr_warmup_iters", "lr_schedule.warmup"},
    {"warmup_ratio", "lr_schedule.warmup", "in steps"},
    {"min_lr", "lr_schedule.min_ratio", "a share of optimizer.lr"},
    {"lr_decay_iters", "lr_schedule.end"},

    {"max_steps", "steps"},
    {"num_steps", "steps"},
    {"total_steps", "steps"},
    {"max_iters", "steps"},
    {"train_iters", "steps"},
    {"epochs", "steps", "updates of the weights, not epochs"},
    {"num_epochs", "steps", "updates of the weights, not epochs"},
    {"max_epochs", "steps", "updates of the weights, not epochs"},
    {"num_train_epochs", "steps", "updates of the weights, not epochs"},
    {"dtype", "precision"},
    {"torch_dtype", "precision"},
    {"mixed_precision", "precision"},
    {"random_seed", "seed"},
    {"num_threads", "threads"},
    {"output_dir", "out"},
    {"out_dir", "out"},
    {"save_steps", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"eval_steps", "eval.every"},
    {"eval_interval", "eval.every"},
    {"eval_iters", "eval.batches"},

    {"num_gpus", "strategy.data"},
    {"data_parallel_size", "strategy.data"},
    {"tensor_parallel_size", "strategy.tensor"},
    {"tensor_model_parallel_size", "strategy.tensor"},
    {"pipeline_parallel_size", "strategy.pipe"},
    {"pipeline_model_parallel_size", "strategy.pipe"},
    {"zero_stage", "strategy.zero"},
    {"gradient_checkpointing", "strategy.recompute"},
    {"recompute_granularity", "strategy.recompute"},
};

}  // namespace

std::span<const OtherName> other_names() { return kNames; }

const OtherName* find_other_name(std::string_view name) {
  const auto found = std::find_if(std::begin(kNames), std::end(kNames), [&](const OtherName& other) { return other.name == name; });
  return found == std::end(kNames) ? nullptr : found;
}

}  // namespace plimsoll::config
