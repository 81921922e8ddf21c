"""Model folders to Plimsoll and back, with transformers as the judge: small models of every family, tied and untied, with
and without biases, in one file and in several, stored as f32, bf16 and fp16.

    python tools/golden/round_trip.py [--plimsoll build/release/src/cli/plimsoll]

Each case goes transformers -> `plimsoll import` -> transformers, and transformers -> `plimsoll train` (one step with a
learning rate of 0) -> `plimsoll export` -> transformers. Weights must come back bit for bit, logits be equal, keys of the
configuration that nobody knows and tokenizer.json be as they were. For causal models the loss of `plimsoll eval` in f32 is
held against PyTorch's on the same tokens.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import numpy as np
import torch
import transformers as hf

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SEQUENCE = 32
LOSS_TOLERANCE = 1e-5


def llama_sizes(**fields):
    return dict(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, num_key_value_heads=2, intermediate_size=100,
                max_position_embeddings=64, vocab_size=301, bos_token_id=None, eos_token_id=5, pad_token_id=None) | fields


def gpt2_sizes(**fields):
    return dict(n_layer=3, n_embd=48, n_head=6, n_positions=64, vocab_size=301, bos_token_id=None, eos_token_id=5, resid_pdrop=0.0,
                embd_pdrop=0.0, attn_pdrop=0.0) | fields


def bert_sizes(**fields):
    return dict(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, intermediate_size=100, max_position_embeddings=64,
                vocab_size=301, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0) | fields


def cases():
    yield "gpt2-tied", hf.GPT2LMHeadModel, hf.GPT2Config(**gpt2_sizes())
    yield "gpt2-untied", hf.GPT2LMHeadModel, hf.GPT2Config(**gpt2_sizes(tie_word_embeddings=False))
    yield "llama-untied", hf.LlamaForCausalLM, hf.LlamaConfig(**llama_sizes())
    yield "llama-tied", hf.LlamaForCausalLM, hf.LlamaConfig(**llama_sizes(tie_word_embeddings=True))
    yield "qwen2-biases", hf.Qwen2ForCausalLM, hf.Qwen2Config(**llama_sizes())
    yield "qwen3-qk-norm", hf.Qwen3ForCausalLM, hf.Qwen3Config(**llama_sizes(head_dim=16))
    yield "mistral-window", hf.MistralForCausalLM, hf.MistralConfig(**llama_sizes(sliding_window=8))
    yield "bert-tied", hf.BertForMaskedLM, hf.BertConfig(**bert_sizes())
    yield "bert-untied", hf.BertForMaskedLM, hf.BertConfig(**bert_sizes(tie_word_embeddings=False))


def save(model, folder, shard):
    model.save_pretrained(folder, max_shard_size=shard)
    config = json.loads((folder / "config.json").read_text())
    config["made_up"] = {"kept": [1, 2.5, "three", None]}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "text": "\u00e9\U0001f600"}))


def perturb(model):
    """Nothing may be all zeros or ones: a bias or a norm that is lost would not show."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))


def run(plimsoll, *words, cwd):
    done = subprocess.run([plimsoll, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def differences(model, model_class, original, folder, dtype, ids):
    """Problems of a folder that should hold `model`, and the largest difference of the logits."""
    problems = []
    back = model_class.from_pretrained(folder, dtype=dtype).eval()
    expected, found = model.state_dict(), back.state_dict()
    if expected.keys() != found.keys():
        problems.append(f"other tensors: {sorted(expected.keys() ^ found.keys())}")
    if not model.config.tie_word_embeddings:
        expected.pop("cls.predictions.bias", None)  # BERT's second copy of the head's bias, which nothing reads when untied
    problems += [f"{name} differs" for name in expected if name in found and not torch.equal(expected[name], found[name])]
    with torch.no_grad():
        gap = (model(ids).logits.float() - back(ids).logits.float()).abs().max().item()
    if gap != 0.0:
        problems.append(f"logits differ by {gap}")
    before, after = (json.loads((where / "config.json").read_text()) for where in (original, folder))
    lost = [key for key in before if key not in ("torch_dtype", "dtype", "transformers_version") and before[key] != after.get(key)]
    if lost:
        problems.append(f"config.json: {lost} changed")
    if (original / "tokenizer.json").read_bytes() != (folder / "tokenizer.json").read_bytes():
        problems.append("tokenizer.json changed")
    return problems, gap


def loss_of(model, ids):
    with torch.no_grad():
        logits = model.float()(ids).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).double(), ids[:, 1:].reshape(-1)).item()


def check(plimsoll, name, model_class, config, dtype_name, shard, folder):
    dtype = DTYPES[dtype_name]
    torch.manual_seed(7)
    model = model_class(config)
    perturb(model)
    model = model.to(dtype).eval()
    original = folder / "original"
    save(model, original, shard)
    # As it is loaded: .to() has rounded the rotary frequencies too, which loading does not.
    model = model_class.from_pretrained(original, dtype=dtype).eval()
    ids = torch.randint(0, config.vocab_size, (4, SEQUENCE + 1))
    np.asarray(ids.flatten(), dtype=np.uint16).tofile(folder / "tokens.bin")

    run(plimsoll, "import", original, folder / "imported", "--max-shard", "40KB" if shard == "40KB" else "5GB", cwd=folder)
    problems, gap = differences(model, model_class, original, folder / "imported", dtype, ids[:, :SEQUENCE])

    settings = {"model": {"path": str(original)}, "data": {"train": "tokens.bin", "valid": "tokens.bin"},
                "batch": {"global": 2, "sequence": SEQUENCE}, "optimizer": {"type": "adamw", "lr": 0.0}, "steps": 1, "threads": 2,
                "eval": {"every": 0, "batches": 0}, "out": "out"}
    if config.model_type == "bert":
        settings["mlm"] = {"mask_token": 3}
    (folder / "run.json").write_text(json.dumps(settings))
    eval_gap = None
    if config.model_type != "bert":
        # Sample i is tokens [32 i, 32 i + 32) with the token after each as its target.
        stream = ids.flatten()
        count = (len(stream) - 1) // SEQUENCE
        rows = torch.stack([stream[SEQUENCE * i : SEQUENCE * (i + 1) + 1] for i in range(count)])
        expected = loss_of(model_class.from_pretrained(original, dtype=torch.float32).eval(), rows)
        settings_eval = settings | {"data": {"valid": "whole.bin"}}
        np.asarray(stream[: SEQUENCE * count + 1], dtype=np.uint16).tofile(folder / "whole.bin")
        (folder / "eval.json").write_text(json.dumps(settings_eval | {"out": "nothing"}))
        found = json.loads(run(plimsoll, "eval", "eval.json", "--json", cwd=folder))["loss"]
        eval_gap = abs(found - expected) / expected
        if not eval_gap < LOSS_TOLERANCE:
            problems.append(f"loss {found}, PyTorch's {expected}")
    run(plimsoll, "train", "run.json", cwd=folder)
    for source, target in (("run.json", "exported"), ("out", "from-folder"), ("out/checkpoints/step-00000001", "from-checkpoint")):
        run(plimsoll, "export", source, target, "--dtype", dtype_name, cwd=folder)
        more, more_gap = differences(model, model_class, original, folder / target, dtype, ids[:, :SEQUENCE])
        problems += [f"{target}: {problem}" for problem in more]
        gap = max(gap, more_gap)
    return problems, gap, eval_gap


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", type=pathlib.Path, default=ROOT / "build/release/src/cli/plimsoll")
    parser.add_argument("--only", help="cases whose name contains this")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    wrong, losses = 0, []
    for name, model_class, config in cases():
        if arguments.only and arguments.only not in name:
            continue
        for dtype_name in DTYPES:
            for shard in ("5GB", "40KB"):
                with tempfile.TemporaryDirectory() as folder:
                    problems, gap, eval_gap = check(arguments.plimsoll.resolve(), name, model_class, config, dtype_name, shard,
                                                    pathlib.Path(folder))
                losses.append(eval_gap if eval_gap is not None else 0.0)
                said = "" if eval_gap is None else f", loss of eval within {eval_gap:.1e}"
                print(f"{name:<15} {dtype_name:<5} {'sharded' if shard == '40KB' else 'one file':<9} logits differ by {gap}{said}", flush=True)
                for problem in problems:
                    print(f"    {problem}")
                wrong += bool(problems)
    print(f"{wrong} wrong; losses within {max(losses):.1e}" if losses and math.isfinite(max(losses)) else f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
