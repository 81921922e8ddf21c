#!/usr/bin/env python3
"""Shows that a change left plans, losses and speed as they were.

    ./dev corpus                       # compares plans and losses with tests/corpus, then measures: build/corpus/figures.json
    ./dev corpus --update              # stores the plans and losses of this tree in tests/corpus
    ./dev corpus --dump FOLDER         # writes every plan there, NAME.txt for people and NAME.json with every field
    ./dev corpus --diff COMMIT         # what changed in the plans since a commit
    ./dev corpus --against COMMIT      # measures this tree and that commit in turns; also takes a build folder

Measured are the time to make large plans, the time of a step, processor time and peak memory of the process, and the size of the program.
On a machine that others use, processor time is steadier than elapsed time.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/corpus"
RELEASE = ROOT / "build/release"

RUN = {
    "model": {"family": "gpt2", "layers": 4, "width": 256, "heads": 4, "context": 128, "vocab": 256},
    "batch": {"global": 8, "micro": 4, "sequence": 128},
    "device": "cpu", "threads": 1, "steps": 12, "checkpoint": {"every": 0},
}
WARM_UP = 4  # steps

# What is made: a command, its arguments, and the settings that differ from RUN.
PLANS = {
    "plan: llama-70b, pipe 8 x tensor 8": ("plan", [], {
        "model": "llama-70b", "batch.global": 64, "batch.micro": 1, "batch.sequence": 4096, "strategy.pipe": 8, "strategy.tensor": 8}),
    "plan: llama-8b, ZeRO 3, optimal recompute": ("plan", [], {
        "model": "llama-8b", "batch.global": 8, "batch.micro": 1, "batch.sequence": 4096, "strategy.data": 8, "strategy.zero": 3,
        "strategy.recompute": "optimal", "strategy.recompute_memory": 0.5}),
    "plan: gpt2-xl, interleaved, 128 micro-batches": ("plan", [], {
        "model": "gpt2-xl", "batch.global": 128, "batch.micro": 1, "batch.sequence": 1024, "strategy.pipe": 8, "strategy.chunks": 3,
        "strategy.schedule": "interleaved"}),
    "plan: gpt2-xl, offloaded to host and disk": ("plan", [], {
        "model": "gpt2-xl", "batch.global": 32, "batch.micro": 1, "batch.sequence": 1024, "strategy.recompute": "full",
        "strategy.offload.optimizer": "disk", "strategy.offload.params": "host", "strategy.offload.activations": "host",
        "limits.disk_path": "."}),
    "simulate: llama-70b on 512 H100": ("simulate", ["--cluster", "dgx-h100:64"], {
        "model": "llama-70b", "precision": "bf16", "batch.global": 2048, "batch.micro": 1, "batch.sequence": 4096, "strategy.data": 8,
        "strategy.tensor": 8, "strategy.pipe": 8, "strategy.chunks": 5, "strategy.schedule": "interleaved", "strategy.zero": 1}),
}
STEPS = {
    "step: f32": {},
    "step: bf16 llama, recompute": {"model.family": "llama", "model.kv_heads": 2, "precision": "bf16", "strategy.recompute": "full"},
    "step: ZeRO 3 of two ranks": {"strategy.data": 2, "strategy.zero": 3},
    "step: pipeline, optimizer in host memory": {"strategy.pipe": 2, "batch.micro": 1, "strategy.offload.optimizer": "host"},
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--dump", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--diff", metavar="COMMIT")
    parser.add_argument("--against", metavar="COMMIT_OR_BUILD_FOLDER")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each build")
    return parser.parse_args()


def fail(message):
    sys.exit(f"corpus: {message}")


# ---- plans and losses


def test(build, name, *arguments, **environment):
    """Whether the test passes; it says itself what differs."""
    program = build / "tests/corpus" / f"test_{name}"
    if not program.exists():
        fail(f"{program} is not there; the commit may be older than the corpus")
    settled = {**os.environ, "OMP_WAIT_POLICY": "passive", **environment}
    return subprocess.run([program, "--gtest_brief=1", *arguments], env=settled).returncode == 0


def compare(**environment):
    plans = test(RELEASE, "corpus_plans", **environment)
    losses = test(RELEASE, "corpus_losses", "--gtest_also_run_disabled_tests", **environment)
    return plans and losses


def dump(build, folder):
    shutil.rmtree(folder, ignore_errors=True)
    test(build, "corpus_plans", PLIMSOLL_DUMP=str(folder.resolve()))


def build_of(name, *targets):
    """The build folder of that name, or one made of the commit in a tree of its own."""
    if (pathlib.Path(name) / "src/cli/plimsoll").exists():
        return pathlib.Path(name)
    commit = subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], cwd=ROOT, capture_output=True, text=True)
    if commit.returncode != 0:
        fail(f"'{name}' is neither a commit nor a folder with src/cli/plimsoll in it")
    tree = FOLDER / f"tree-{commit.stdout.strip()[:12]}"
    if not tree.exists():
        subprocess.run(["git", "worktree", "add", "--detach", "--force", tree, commit.stdout.strip()], cwd=ROOT, check=True)
    subprocess.run([tree / "dev", "build", "release", *targets], check=True, stdout=subprocess.DEVNULL)
    return tree / "build/release"


def diff(commit):
    dump(build_of(commit, "test_corpus_plans"), FOLDER / "before")
    dump(RELEASE, FOLDER / "after")
    return subprocess.run(["diff", "-r", "-U2", "before", "after"], cwd=FOLDER).returncode == 0


# ---- figures


def write_text(path):
    """Something to train on: words of a few letters, always the same."""
    letters = random.Random(1)
    path.write_text(" ".join("".join(letters.choices("abcdefghij", k=letters.randint(2, 8))) for _ in range(50000)))


def run(build, folder, command, arguments, settings):
    """Seconds, processor time and peak memory of the program."""
    settings = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    start = time.monotonic()
    program = subprocess.Popen([build.resolve() / "src/cli/plimsoll", command, "run.json", *arguments, *settings], cwd=folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = program.stderr.read().decode()
    _, status, usage = os.wait4(program.pid, 0)
    if status != 0:
        fail(f"{build}: plimsoll {command} {' '.join(settings)}: {errors}")
    return {"seconds": time.monotonic() - start, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}


def time_steps(build, folder, settings):
    shutil.rmtree(folder / "out", ignore_errors=True)
    ranks = settings.get("strategy.data", 1) * settings.get("strategy.pipe", 1)
    figures = run(build, folder, "train", ["--ranks", str(ranks)] if ranks > 1 else [], settings)
    events = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    return {**figures, "seconds": statistics.median(event["seconds"] for event in events[WARM_UP:])}


def program_size(build):
    """Code and data, without symbols."""
    table = subprocess.run(["size", build / "src/cli/plimsoll"], capture_output=True, text=True, check=True).stdout
    return {"mib": int(table.splitlines()[1].split()[3]) / 2**20}


def measure(builds, rounds):
    """Medians of every figure for each build, the builds in turns."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / "text.txt")
        (folder / "run.json").write_text(json.dumps({**RUN, "data": {"train": "text.txt"}, "out": "out"}))
        for number in range(rounds):
            for label, build in builds.items() if number % 2 == 0 else reversed(builds.items()):
                rows = {row: run(build, folder, command, [*arguments, "--json"], settings)
                        for row, (command, arguments, settings) in PLANS.items()}
                rows |= {row: time_steps(build, folder, settings) for row, settings in STEPS.items()}
                rows["program"] = program_size(build)
                for row, figures in rows.items():
                    for figure, value in figures.items():
                        found.setdefault((row, figure), {}).setdefault(label, []).append(value)
    return {key: {label: statistics.median(values) for label, values in sides.items()} for key, sides in found.items()}


def report(figures, labels):
    print(f"{'':<48}{'':<14}" + "".join(f"{label:>12}" for label in labels) + (f"{'ratio':>9}" if len(labels) > 1 else ""))
    last = ""
    for (row, figure), sides in figures.items():
        values = [sides[label] for label in labels]
        ratio = f"{values[0] / values[1]:9.3f}" if len(values) > 1 else ""
        print(f"{row if row != last else '':<48}{figure:<14}" + "".join(f"{value:12.3f}" for value in values) + ratio)
        last = row
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = [{"what": row, "figure": figure, **sides} for (row, figure), sides in figures.items()]
    (FOLDER / "figures.json").write_text(json.dumps(rows, indent=1) + "\n")


def main():
    arguments = parse()
    if arguments.dump:
        dump(RELEASE, arguments.dump)
        return True
    if arguments.diff:
        return diff(arguments.diff)
    if arguments.update:
        return compare(PLIMSOLL_UPDATE="1")
    builds = {"here": RELEASE}
    if arguments.against:
        builds["there"] = build_of(arguments.against, "plimsoll")
    same = bool(arguments.against) or compare()
    report(measure(builds, arguments.rounds), list(builds))
    return same


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
