#!/usr/bin/env python3
"""Training steps on one GPU: ours, and PyTorch's beside them where it is installed.

    ./dev bench gpu                                # the table, written to bench/results/gpu_steps.md
    ./dev bench gpu --only "bf16$" --peers compile # rows whose names match, beside torch.compile alone
    ./dev bench gpu --peers none                   # ours alone: torch.compile takes a minute and a half for 1.5B before its first step

Times are of whole steps on the host's clock: inputs up, the step, the loss and the gradient's norm down. The table is measured
with "deterministic": false; the cost of true is a row of its own. A peer trains the same model on as many tokens, in the same command.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ["compile", "eager"]


@dataclass
class Work:
    name: str
    model: str
    samples: int
    options: list
    peer: str  # measured before, with PyTorch 2.11 on an H200
    reach: str
    precision: str = "bf16"
    deterministic: bool = False
    peer_options: list | None = None  # None: no peer is run beside it


WORKS = [
    Work("GPT-2 124M, 32 x 1024, bf16", "gpt2", 32, [], "torch.compile 63.4 ms (eager 93.0), 15.1 GiB; llm.c 68.9 ms", "50 ms, 12 GiB",
         peer_options=[]),
    Work("GPT-2 124M, 32 x 1024, bf16, deterministic", "gpt2", 32, [], "", "", deterministic=True),
    Work("GPT-2 124M, 32 x 1024, bf16, dropout 0.1", "gpt2", 32, ["--dropout", 0.1], "", ""),
    Work("GPT-2 124M, 32 x 1024, fp8 linear layers", "gpt2", 32, ["--fp8-history", 16], "", "", "fp8"),
    Work("GPT-2 1.5B, 16 x 1024, bf16", "gpt2-xl", 16, [], "torch.compile 344 ms, 64.6 GiB; llm.c 338 ms", "285 ms, 50 GiB", peer_options=[]),
    Work("GPT-2 1.5B, 16 x 1024, bf16, deterministic", "gpt2-xl", 16, [], "", "", deterministic=True),
    Work("GPT-2 1.5B, 16 x 1024, bf16, norms and GELU made again", "gpt2-xl", 16, ["--recompute", "selective"], "", "285 ms, 50 GiB"),
    Work("GPT-2 1.5B, 16 x 1024, fp8 linear layers", "gpt2-xl", 16, ["--fp8-history", 16], "", "215 ms", "fp8"),
    Work("GPT-2 1.5B, 16 x 1024, bf16, full recompute", "gpt2-xl", 16, ["--recompute", "full"], "PyTorch 486 ms, 31.8 GiB", "370 ms, 28 GiB",
         peer_options=["--checkpoint"]),
    Work("GPT-2 1.5B, 16 x 1024, bf16, full recompute, optimizer on the host", "gpt2-xl", 16,
         ["--recompute", "full", "--offload", "optimizer=host", "--threads", os.cpu_count()], "DeepSpeed ZeRO-2 offload 1326 ms", "680 ms"),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/cuda/bench/bench_steps")
    parser.add_argument("--only", default="", help="rows whose names match this expression")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--peers", default=",".join(PEERS), help="compile, eager, with commas; or none")
    parser.add_argument("--peer-limit", type=float, default=400, help="seconds for each run of a peer, compiling included")
    parser.add_argument("--python", default=os.environ.get("PLIMSOLL_ORACLE", sys.executable), help="interpreter of the peers")
    parser.add_argument("--profile", action="store_true", help="also print one step's time by kernel")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here")
    arguments = parser.parse_args()
    arguments.peers = [] if arguments.peers == "none" else arguments.peers.split(",")
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"--peers has {', '.join(sorted(unknown))}; expected some of {', '.join(PEERS)}, or none")
    return arguments


def ours(arguments, work, *more):
    command = [arguments.program, "--device", "cuda", "--precision", work.precision, "--sequence", 1024, "--model", work.model, "--samples",
               work.samples, "--clip", 1.0, "--warmup", 4, "--steps", arguments.steps, *work.options, *more]
    if not work.deterministic:
        command.append("--any-order")
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr or done.stdout).strip()
    return (done.stdout if "--profile" in more else json.loads(done.stdout.strip().splitlines()[-1])), ""


def losses(found):
    return f"{found['first_loss']:.4f} -> {found['last_loss']:.4f}"


def time_text(times):
    return f"{1e3 * times['median']:.2f} ms (best {1e3 * times['best']:.2f})"


def row(arguments, work):
    """The line of the table, and the median step."""
    found, error = ours(arguments, work)
    if found is None:
        return f"| {work.name} | {error.splitlines()[-1][:200]} | | | | | | |", None
    times = found["step_seconds"]
    return (f"| {work.name} | {time_text(times)} | | {found['arena_bytes'] / 2**30:.2f} GiB | {found['first_step_seconds']:.1f} s | "
            f"{losses(found)} | {work.peer} | {work.reach} |"), times["median"]


def peer_row(arguments, work, mode, median):
    command = [arguments.python, ROOT / "bench/peers/torch_gpu.py", "--size", work.model, "--batch", work.samples, "--mode", mode, "--steps",
               arguments.steps, *work.peer_options]
    name = f"{work.name}: PyTorch, {'torch.compile' if mode == 'compile' else mode}"
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=arguments.peer_limit)
    except subprocess.TimeoutExpired:
        return f"| {name} | no end after {arguments.peer_limit:.0f} s | | | | | | |"
    if done.returncode != 0:
        return f"| {name} | {(done.stderr.strip().splitlines() or ['failed'])[-1][:200]} | | | | | | |"
    found = json.loads(done.stdout.strip().splitlines()[-1])
    ratio = f"{found['median'] / median:.2f}" if median else ""
    return (f"| {name} {found['version']} | {time_text(found)} | {ratio} | {found['bytes'] / 2**30:.2f} GiB | "
            f"{found['first_step_seconds']:.1f} s | {losses(found)} | | |")


def has_torch(python):
    try:
        return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0
    except OSError:
        return False


def heading(arguments):
    def output_of(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
        except OSError:
            return ""
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    peers = "" if arguments.peers == PEERS else f" --peers {','.join(arguments.peers) or 'none'}"
    return ["# Step times on one GPU", "", f"- machine: {gpu[0] if gpu else 'no GPU'}, {os.cpu_count()} cores",
            f"- commit: {output_of('git', 'rev-parse', '--short', 'HEAD') or 'the one that adds this file'}", f"- date: {datetime.date.today()}",
            f"- command: `./dev bench gpu --steps {arguments.steps}{peers}`", "",
            "Measured with `\"deterministic\": false`; rows that say so are with true. What bounds them: [gpu.md](gpu.md). \"Times ours\": the "
            "peer's median step over ours of the row above it; \"first step\": from the start of the program to its end.", "",
            "| work | step, median | times ours | memory | first step | loss | measured before | to reach |", "|---|---|---|---|---|---|---|---|"]


def main():
    arguments = parse()
    lines = heading(arguments)
    print("\n".join(lines))

    def tell(line):
        lines.append(line)
        print(line, flush=True)

    peers = arguments.peers if has_torch(arguments.python) else []
    for work in WORKS:
        if not re.search(arguments.only, work.name):
            continue
        line, median = row(arguments, work)
        tell(line)
        for mode in peers if work.peer_options is not None else []:
            tell(peer_row(arguments, work, mode, median))
        if arguments.profile:
            print(ours(arguments, work, "--profile")[0], flush=True)
    if arguments.peers and not peers:
        tell(f"\nPyTorch is not installed for {arguments.python}, so no peer was run.")
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")


main()
