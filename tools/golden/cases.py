"""The golden cases: small models, one per thing that could go wrong, and the batches they are run on.

A case is a transformers configuration and a kind of batch. The run-file model fields are derived from the
configuration here, in one place, so that the two descriptions of a case cannot drift apart.
"""

import dataclasses

import numpy as np
import torch
import transformers as hf

import philox

BATCHES = 4  # step s trains on batch s % 4
MASK_TOKEN = 3  # bert-tiny


@dataclasses.dataclass
class Case:
    name: str
    model_class: type
    config: hf.PreTrainedConfig
    batch: int
    sequence: int
    kind: str = "causal"  # causal | packed | mlm
    ignored: bool = False  # some labels ignored, unevenly over the rows
    lr: float = 1e-3
    # bert-tiny needs less than the others: the gradient of its key biases is exactly zero (softmax ignores a shift), so
    # all that f32 leaves there is rounding noise of the attention's gradients, held against 1e-8 of the largest gradient
    matrix_std: float = 0.2


def gpt2(**fields):
    quiet = dict(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None, eos_token_id=None, use_cache=False)
    return hf.GPT2Config(**quiet, **fields)


def llama_like(config_class, **fields):
    return config_class(bos_token_id=None, eos_token_id=None, pad_token_id=None, use_cache=False, **fields)


def sizes(layers, width, heads, kv_heads, ffn, context, vocab):
    return dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, num_key_value_heads=kv_heads,
                intermediate_size=ffn, max_position_embeddings=context, vocab_size=vocab)


def all_cases():
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    linear = dict(rope_type="linear", rope_theta=500.0, factor=2.5)
    plain = dict(rope_type="default", rope_theta=10000.0)
    return [
        Case("gpt2-tiny", hf.GPT2LMHeadModel, gpt2(n_layer=2, n_embd=32, n_head=4, n_positions=16, vocab_size=61), 4, 16),
        Case("gpt2-untied-odd", hf.GPT2LMHeadModel,
             gpt2(n_layer=2, n_embd=30, n_head=3, n_inner=70, n_positions=17, vocab_size=97, tie_word_embeddings=False),
             3, 13, ignored=True),
        Case("gpt2-packed", hf.GPT2LMHeadModel, gpt2(n_layer=2, n_embd=24, n_head=3, n_positions=16, vocab_size=53), 3, 16, kind="packed"),
        Case("llama-tiny", hf.LlamaForCausalLM,
             llama_like(hf.LlamaConfig, **sizes(2, 32, 4, 2, 56, 16, 61), rms_norm_eps=1e-5, rope_parameters=plain), 4, 16, ignored=True),
        Case("llama-tied-llama3rope", hf.LlamaForCausalLM,
             llama_like(hf.LlamaConfig, **sizes(2, 24, 3, 1, 40, 512, 67), rms_norm_eps=1e-5, rope_parameters=llama3,
                        tie_word_embeddings=True), 2, 24, lr=3e-3),
        Case("llama-linearrope", hf.LlamaForCausalLM,
             llama_like(hf.LlamaConfig, **sizes(2, 24, 3, 3, 40, 32, 59), rms_norm_eps=1e-6, rope_parameters=linear), 3, 11),
        Case("llama-packed", hf.LlamaForCausalLM,
             llama_like(hf.LlamaConfig, **sizes(2, 24, 3, 1, 40, 16, 53), rms_norm_eps=1e-5, rope_parameters=plain), 3, 16, kind="packed"),
        Case("qwen2-tiny", hf.Qwen2ForCausalLM,
             llama_like(hf.Qwen2Config, **sizes(2, 32, 4, 2, 48, 32, 61), rms_norm_eps=1e-6, tie_word_embeddings=True,
                        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), 3, 16),
        Case("llama-bias", hf.LlamaForCausalLM,
             llama_like(hf.LlamaConfig, **sizes(2, 24, 4, 2, 40, 16, 59), rms_norm_eps=1e-5, rope_parameters=plain, attention_bias=True),
             3, 16),
        Case("qwen3-tiny", hf.Qwen3ForCausalLM,
             llama_like(hf.Qwen3Config, **sizes(2, 24, 4, 2, 40, 32, 61), head_dim=10, rms_norm_eps=1e-6,
                        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), 3, 16),
        Case("mistral-window", hf.MistralForCausalLM,
             llama_like(hf.MistralConfig, **sizes(2, 32, 4, 1, 48, 32, 61), head_dim=8, sliding_window=4, rms_norm_eps=1e-5,
                        rope_parameters=plain), 3, 16),
        Case("bert-tiny", hf.BertForMaskedLM,
             hf.BertConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=56, max_position_embeddings=20,
                           vocab_size=59, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
             4, 18, kind="mlm", matrix_std=0.1),
    ]


def run_rope(parameters):
    fields = {"theta": parameters["rope_theta"], "scaling": {"default": "none"}.get(parameters["rope_type"], parameters["rope_type"])}
    if "factor" in parameters:
        fields["factor"] = parameters["factor"]
    if fields["scaling"] == "llama3":
        fields["low_frequency_factor"] = parameters["low_freq_factor"]
        fields["high_frequency_factor"] = parameters["high_freq_factor"]
        fields["original_context"] = parameters["original_max_position_embeddings"]
    return fields


def run_model(config):
    """The run file's "model" object for a transformers configuration."""
    if config.model_type == "gpt2":
        return {"family": "gpt2", "layers": config.n_layer, "width": config.n_embd, "heads": config.n_head,
                "ffn": config.n_inner or 4 * config.n_embd, "context": config.n_positions, "vocab": config.vocab_size,
                "tied": config.tie_word_embeddings, "dropout": 0.0, "norm_eps": config.layer_norm_epsilon, "activation": "gelu_tanh"}
    common = {"layers": config.num_hidden_layers, "width": config.hidden_size, "heads": config.num_attention_heads,
              "ffn": config.intermediate_size, "context": config.max_position_embeddings, "vocab": config.vocab_size,
              "tied": config.tie_word_embeddings, "dropout": 0.0}
    if config.model_type == "bert":
        return {"family": "bert", **common, "norm_eps": config.layer_norm_eps, "activation": "gelu_erf",
                "token_types": config.type_vocab_size}
    return {"family": "llama", **common, "kv_heads": config.num_key_value_heads,
            "head_dim": config.head_dim if getattr(config, "head_dim", None) else config.hidden_size // config.num_attention_heads,
            "norm_eps": config.rms_norm_eps, "activation": "silu", "qkv_bias": config.model_type == "qwen2" or getattr(config, "attention_bias", False),
            **({"out_bias": True} if getattr(config, "attention_bias", False) else {}),
            "qk_norm": config.model_type == "qwen3",
            "sliding_window": (config.sliding_window or 0) if config.model_type == "mistral" else 0,
            "rope": run_rope(config.rope_parameters)}


def run_file(config, batch, sequence, settings, steps):
    return {
        "model": run_model(config),
        "batch": {"global": batch, "micro": batch, "sequence": sequence},
        "optimizer": {"type": "adamw", "lr": settings.lr, "betas": list(settings.betas), "eps": settings.eps,
                      "weight_decay": settings.weight_decay, "clip": settings.clip},
        "lr_schedule": {"type": "constant", "warmup": settings.warmup},
        "precision": "f32",
        "steps": steps,
    }


def make_weights(case, seed):
    """f32 weights by name, none of them all ones or zeros, so that a forgotten term shows."""
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in case.model_class(case.config).named_parameters()}
    weights = {}
    for name, shape in shapes.items():
        noise = philox.normal(seed, name, shape)
        if len(shape) == 1 and name.endswith("weight"):
            values = 1.0 + 0.2 * noise
        elif len(shape) == 1:
            values = 0.1 * noise
        else:
            values = case.matrix_std * noise
        weights[name] = torch.from_numpy(values.astype(np.float32))
    return weights


def documents(seed, batch, length):
    """[B, T] segment ids and positions within the document; lengths 1 .. 7, each row cut differently."""
    segments, positions = np.zeros((batch, length), np.int32), np.zeros((batch, length), np.int32)
    for row in range(batch):
        cuts = philox.integers(seed, f"cuts.{row}", (length,), 1, 8)
        cuts[row % 3] = 1  # a document of one token has nothing to predict
        start = 0
        for segment, size in enumerate(cuts):
            end = min(start + int(size), length)
            segments[row, start:end] = segment
            positions[row, start:end] = np.arange(end - start)
            start = end
    return segments, positions


def causal_batch(case, seed):
    shape, vocab = (case.batch, case.sequence), case.config.vocab_size
    stream = philox.integers(seed, "tokens", (case.batch, case.sequence + 1), 0, vocab)
    batch = {"input_ids": stream[:, :-1], "labels": stream[:, 1:].copy(),
             "position_ids": np.broadcast_to(np.arange(case.sequence, dtype=np.int32), shape)}
    if case.kind == "packed":
        batch["segment_ids"], batch["position_ids"] = documents(seed, *shape)
        ends = np.ones(shape, bool)
        ends[:, :-1] = batch["segment_ids"][:, 1:] != batch["segment_ids"][:, :-1]
        batch["labels"][ends] = -1
    if case.ignored:
        for row in range(case.batch):
            batch["labels"][row, : 1 + 3 * row] = -1
    return batch


def mlm_batch(case, seed):
    shape, vocab = (case.batch, case.sequence), case.config.vocab_size
    original = philox.integers(seed, "tokens", shape, 4, vocab)  # 0 is padding, 1 to 3 are special
    lengths = [case.sequence - 3 * row for row in range(case.batch)]
    columns = np.arange(case.sequence)
    present = columns[None, :] < np.array(lengths)[:, None]
    chosen = present & (philox.integers(seed, "chosen", shape, 0, 100) < 30)
    chosen[:, 1] = True
    how = philox.integers(seed, "how", shape, 0, 10)
    swapped = philox.integers(seed, "swapped", shape, 4, vocab)
    tokens = np.where(chosen & (how < 8), MASK_TOKEN, np.where(chosen & (how == 8), swapped, original))
    split = np.array(lengths)[:, None] // 2
    return {"input_ids": np.where(present, tokens, 0), "labels": np.where(chosen, original, -1),
            "position_ids": np.broadcast_to(columns, shape), "attention_mask": present,
            "token_type_ids": present & (columns[None, :] >= split)}


def make_batches(case, seed):
    """Tensors [BATCHES, B, T], int32."""
    make = mlm_batch if case.kind == "mlm" else causal_batch
    parts = [make(case, seed + 1000 * (index + 1)) for index in range(BATCHES)]
    return {name: torch.from_numpy(np.stack([part[name] for part in parts]).astype(np.int32)) for name in parts[0]}
