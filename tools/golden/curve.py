"""A 200-step training curve: a GPT-2-shaped byte model on the King James text, trained by PyTorch in f32.

Neither the initial weights nor the batches need a file: weights follow the counter-based rule of philox.py by their
transformers name and layout, and the batches are the corpus in file order. `init.json` holds a few values and the sum
of every tensor, so that a difference in the starting point is not mistaken for one in training.
"""

import math
import shutil
import subprocess

import torch
import transformers as hf

import cases
import philox
import reference

SEED = 1337
STEPS, BATCH, CONTEXT = 200, 8, 64
INIT_STD = 0.02
SETTINGS = reference.Optimizer(lr=1e-3, warmup=20)
DUMP = ["bible", "-f", "gen1:1-rev22:21"]  # one verse a line, "Ge1:1 In the beginning ..."
NEEDED_BYTES = STEPS * BATCH * CONTEXT + 1


def read_corpus(text, folder):
    stored = folder / "corpus.txt"
    if text:
        corpus = text.read_bytes()
    elif stored.exists():
        corpus = stored.read_bytes()
    elif shutil.which(DUMP[0]):
        corpus = subprocess.run(DUMP, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
    else:
        raise SystemExit("curve: no text; install bible-kjv and bible-kjv-text, or give --text FILE")
    if len(corpus) < NEEDED_BYTES:
        raise SystemExit(f"curve: the text has {len(corpus)} bytes; expected at least {NEEDED_BYTES}")
    return corpus[:NEEDED_BYTES]


def make_batches(corpus):
    """Step s takes samples 8s .. 8s + 7; sample i is bytes [iT, iT + T) with targets one further."""
    tokens = torch.tensor(list(corpus), dtype=torch.int32)
    shape = (STEPS, BATCH, CONTEXT)
    positions = torch.arange(CONTEXT, dtype=torch.int32).expand(shape)
    return {"input_ids": tokens[:-1].reshape(shape), "labels": tokens[1:].reshape(shape), "position_ids": positions}


def weight_std(name, shape, layers):
    if len(shape) == 1:
        return 0.0
    # the two projections that write into the residual stream are scaled down by the number of such writes
    return INIT_STD / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else INIT_STD


def make_weights(model_class, config):
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in model_class(config).named_parameters()}
    weights, described = {}, {}
    for name, shape in shapes.items():
        std = weight_std(name, shape, config.n_layer)
        if std > 0:
            # the product is rounded once, to f32, as `float(std * double(normal))` would be
            values = torch.from_numpy(philox.normal(SEED, name, shape)).double().mul(std).float()
        else:
            values = torch.full(shape, 1.0 if name.endswith("weight") else 0.0)
        weights[name] = values
        described[name] = {"shape": list(shape), "std": std, "first": [round(v, 10) for v in values.flatten()[:4].tolist()],
                           "sum": values.double().sum().item()}
    return weights, described


def make(text, folder):
    config = cases.gpt2(n_layer=4, n_embd=128, n_head=4, n_positions=CONTEXT, vocab_size=256)
    corpus = read_corpus(text, folder)
    batches = make_batches(corpus)
    weights, described = make_weights(hf.GPT2LMHeadModel, config)
    losses, norms = {}, {}
    for dtype in (torch.float32, torch.float64):
        model = reference.build(hf.GPT2LMHeadModel, config, dtype, weights)
        losses[dtype], norms[dtype] = reference.train(model, batches, SETTINGS, STEPS)
    single, exact = losses[torch.float32], losses[torch.float64]
    print(f"curve: loss {single[0]:.4f} -> {single[-1]:.4f} (mean of the last 10: {single[-10:].mean():.4f}); "
          f"largest relative difference f32 to f64 {((single - exact).abs() / exact).max():.1e}")
    expect = {"losses": single, "grad_norm": norms[torch.float32], "lr": torch.tensor([SETTINGS.rate(s) for s in range(STEPS)])}
    run = cases.run_file(config, BATCH, CONTEXT, SETTINGS, STEPS)
    run |= {"data": {"train": "corpus.txt", "tokenizer": "bytes", "shuffle": False}, "seed": SEED}
    return {
        "corpus.txt": corpus,
        "config.json": reference.written_config(hf.GPT2LMHeadModel, config, weights),
        "run.json": run,
        "init.json": described,
        "expect.safetensors": {name: values.float() for name, values in expect.items()},
    }
