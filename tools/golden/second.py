"""Writes tests/golden/data/<case>/second.safetensors: the product of the loss's Hessian with a direction, by PyTorch's double backward.

    python tools/golden/second.py            # every case in CASES
    python tools/golden/second.py --check    # recompute and compare, write nothing

The models, weights and batches are those of make_golden.py, in float64 as there; batch 0 at the initial weights. `product.<parameter>`
is the derivative of <gradient, direction> by the parameter, where the direction's elements are standard normal by
(SEED, "direction.<parameter>", element), the rule of philox.py, so that they need not be stored.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from safetensors.torch import load_file, save_file

import cases
import philox
import reference

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "data"
CASES = ("gpt2-tiny", "gpt2-packed", "llama-tied-llama3rope", "qwen3-tiny", "bert-tiny")
SEED = 7


def direction(name, shape):
    return torch.from_numpy(philox.normal(SEED, f"direction.{name}", tuple(shape))).double()


def products(model, batch):
    names, parameters = zip(*model.named_parameters())
    along = [direction(name, parameter.shape) for name, parameter in zip(names, parameters)]
    with reference.arithmetic(model.dtype):
        _, loss = reference.forward(model, batch)
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        slope = sum((gradient * vector.to(gradient.dtype)).sum() for gradient, vector in zip(gradients, along))
        found = torch.autograd.grad(slope, parameters)
    return {name: product.detach() for name, product in zip(names, found)}


def make(case):
    folder = DATA / case.name
    weights = load_file(folder / "weights.safetensors")
    batch = reference.pick(load_file(folder / "batch.safetensors"), 0)
    exact = products(reference.build(case.model_class, case.config, torch.float64, weights), batch)
    single = products(reference.build(case.model_class, case.config, torch.float32, weights), batch)
    largest = max(product.abs().max().item() for product in exact.values())
    error = max((single[name].double() - product).abs().max().item() / max(product.abs().max().item(), 1e-3 * largest)
                for name, product in exact.items())
    print(f"{case.name:<23} largest {largest:.2f}, eager f32 is off by {error:.1e}")
    return {f"product.{name}": product.float().contiguous() for name, product in exact.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the stored files instead of writing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for case in cases.all_cases():
        if case.name not in CASES:
            continue
        found = make(case)
        path = DATA / case.name / "second.safetensors"
        if not arguments.check:
            save_file(found, path)
            continue
        stored = load_file(path)
        for name, product in found.items():
            if (stored[name] - product).abs().max().item() > 1e-6 * product.abs().max().item():
                print(f"{path}: {name} differs")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
