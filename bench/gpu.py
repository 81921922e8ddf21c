#!/usr/bin/env python3
"""Training steps on one GPU: ours, and PyTorch's where it is installed.

    ./dev bench gpu                          # the table, written to bench/results/gpu_steps.md
    ./dev bench gpu --only "124M" --no-peers # one row, without eager PyTorch and torch.compile, which take minutes

Times are of whole steps on the host's clock: inputs up, the step, the loss and the gradient's norm down. The table is measured
with "deterministic": false; the cost of true is a row of its own.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclass
class Work:
    name: str
    model: str
    samples: int
    options: list
    peer: str  # measured before, with PyTorch 2.11 on an H200
    reach: str
    precision: str = "bf16"


WORKS = [
    Work("GPT-2 124M, 32 x 1024, bf16", "gpt2", 32, [], "torch.compile 63.4 ms (eager 93.0), 15.1 GiB; llm.c 68.9 ms", "50 ms, 12 GiB"),
    Work("GPT-2 124M, 32 x 1024, bf16, dropout 0.1", "gpt2", 32, ["--dropout", 0.1], "", ""),
    Work("GPT-2 124M, 32 x 1024, fp8 linear layers", "gpt2", 32, ["--fp8-history", 16], "", "", "fp8"),
    Work("GPT-2 1.5B, 16 x 1024, bf16", "gpt2-xl", 16, [], "torch.compile 344 ms, 64.6 GiB; llm.c 338 ms", "285 ms, 50 GiB"),
    Work("GPT-2 1.5B, 16 x 1024, bf16, norms and GELU made again", "gpt2-xl", 16, ["--recompute", "selective"], "", "285 ms, 50 GiB"),
    Work("GPT-2 1.5B, 16 x 1024, fp8 linear layers", "gpt2-xl", 16, ["--fp8-history", 16], "", "215 ms", "fp8"),
    Work("GPT-2 1.5B, 16 x 1024, bf16, full recompute", "gpt2-xl", 16, ["--recompute", "full"], "PyTorch 486 ms, 31.8 GiB", "370 ms, 28 GiB"),
    Work("GPT-2 1.5B, 16 x 1024, bf16, full recompute, optimizer on the host", "gpt2-xl", 16,
         ["--recompute", "full", "--offload", "optimizer=host", "--threads", os.cpu_count()], "DeepSpeed ZeRO-2 offload 1326 ms", "680 ms"),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/cuda/bench/bench_steps")
    parser.add_argument("--only", default="", help="work whose name contains this")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--no-peers", action="store_true", help="do not run PyTorch, where it is installed")
    parser.add_argument("--profile", action="store_true", help="also print one step's time by kernel")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here")
    return parser.parse_args()


def ours(arguments, work, *more):
    command = [arguments.program, "--device", "cuda", "--precision", work.precision, "--sequence", 1024, "--model", work.model, "--samples",
               work.samples, "--clip", 1.0, "--warmup", 4, "--steps", arguments.steps, *work.options, *more]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr or done.stdout).strip()
    return (done.stdout if "--profile" in more else json.loads(done.stdout.strip().splitlines()[-1])), ""


def row(arguments, work, label, *more):
    found, error = ours(arguments, work, *more)
    if found is None:
        return f"| {work.name}{label} | {error.splitlines()[-1][:200]} | | | |"
    times = found["step_seconds"]
    loss = f"{found['first_loss']:.4f} -> {found['last_loss']:.4f}"
    return (f"| {work.name}{label} | {1e3 * times['median']:.2f} ms (best {1e3 * times['best']:.2f}) | {found['arena_bytes'] / 2**30:.2f} GiB | "
            f"{work.peer} | {work.reach}; loss {loss} |")


def peers(work):
    script = ROOT / "bench/peers/torch_gpu.py"
    for mode in ("eager", "compile"):
        done = subprocess.run([sys.executable, script, "--size", work.model, "--batch", str(work.samples), "--mode", mode],
                              capture_output=True, text=True)
        yield f"| {work.name}, PyTorch {mode} here | {done.stdout.strip() or done.stderr.strip()[-200:]} | | | |"


def heading():
    def output_of(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
        except OSError:
            return ""
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    return ["# Step times on one GPU", "", f"- machine: {gpu[0] if gpu else 'no GPU'}, {os.cpu_count()} cores",
            f"- commit: {output_of('git', 'rev-parse', '--short', 'HEAD') or 'the one that adds this file'}", f"- date: {datetime.date.today()}",
            "- command: `./dev bench gpu`", "", "Measured with `\"deterministic\": false`; rows that say so are with true. What bounds them: [gpu.md](gpu.md).", ""]


def main():
    arguments = parse()
    has_torch = not arguments.no_peers and importlib.util.find_spec("torch") is not None
    lines = [*heading(), "| work | step, median | arena | measured peer | to reach |", "|---|---|---|---|---|"]
    print("\n".join(lines))

    def tell(line):
        lines.append(line)
        print(line, flush=True)

    for work in WORKS:
        if arguments.only not in work.name:
            continue
        tell(row(arguments, work, "", "--any-order"))
        if not work.options:
            tell(row(arguments, work, ", deterministic"))
        if has_torch and not work.options:
            for line in peers(work):
                tell(line)
        if arguments.profile:
            print(ours(arguments, work, "--any-order", "--profile")[0], flush=True)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


main()
