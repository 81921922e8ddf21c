"""Writes tests/golden/data/<case>/generate.json: what transformers' greedy search makes of a prompt.

    python tools/golden/generate.py            # every causal case
    python tools/golden/generate.py --check    # recompute and compare, write nothing

The models are those of make_golden.py, in float64 as there, with transformers' own cache. `margin` is the least distance
between the likeliest and the second token on the way, relative to the largest logit: where it is far above f32's
rounding, any right implementation makes the same tokens.
"""

import argparse
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from safetensors.torch import load_file

import cases
import reference

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "data"
MOST_TOKENS = 80
LEAST_MARGIN = 1e-4


def context_of(config):
    return getattr(config, "n_positions", None) or config.max_position_embeddings


def make(case):
    weights = load_file(DATA / case.name / "weights.safetensors")
    model = reference.build(case.model_class, case.config, torch.float64, weights).eval()
    context = context_of(case.config)
    vocab = case.config.vocab_size
    length = max(2, min(9, context // 3))
    prompt = [(11 * place + 7) % vocab for place in range(length)]
    count = min(MOST_TOKENS, context - length)
    with torch.no_grad(), reference.arithmetic(torch.float64):
        ids = torch.tensor([prompt])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, use_cache=True, max_new_tokens=count,
                              min_new_tokens=count, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    margin = 1.0
    for logits in made.logits:
        best = logits[0].topk(2).values
        margin = min(margin, ((best[0] - best[1]) / logits.abs().max()).item())
    assert margin > LEAST_MARGIN, (case.name, margin)
    return {"prompt": prompt, "tokens": made.sequences[0, length:].tolist(), "margin": margin}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the stored files instead of writing")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    wrong = 0
    for case in cases.all_cases():
        if case.kind == "mlm":
            continue
        found = make(case)
        path = DATA / case.name / "generate.json"
        print(f"{case.name:<23} {len(found['tokens'])} tokens, {len(set(found['tokens']))} different, margin {found['margin']:.1e}")
        if arguments.check:
            stored = json.loads(path.read_text())
            if (stored["prompt"], stored["tokens"]) != (found["prompt"], found["tokens"]):
                print(f"{path}: differs")
                wrong += 1
        else:
            path.write_text(json.dumps(found) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
