#!/usr/bin/env python3
"""What leaner optimizer state costs in loss: the demo's model on the demo's text in bf16, once for every form and seed.

    tools/make_corpus.sh runs/corpus
    ./dev bench lean_states               # written to bench/results/lean_states.md
    ./dev bench lean_states --steps 50 --seeds 1

Losses of one seed differ between forms by chance too, as those of two seeds do: the table has both.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

from peers import contest
from peers.contest import report

FORMS = [("f32", "f32", 12), ("split", "f32", 10), ("none", "f32", 8), ("f32", "bf16", 8), ("split", "bf16", 6), ("none", "bf16", 4)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    return contest.parse(parser)


def losses(arguments, program, master, moments, seed):
    """Training losses by step, and the last one of the validation text."""
    steps = arguments.steps
    with tempfile.TemporaryDirectory() as folder:
        settings = {"precision": "bf16", "optimizer.master": master, "optimizer.moments": moments, "seed": seed, "steps": steps,
                    "batch.global": 4, "batch.micro": 4, "eval.every": steps, "checkpoint.every": steps, "threads": arguments.threads,
                    "out": folder}
        command = [program, "train", "recipes/demo.json", "--fresh"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        events = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
        return [event["loss"] for event in events], events[-1]["eval_loss"]


def main():
    arguments = parse()
    program = contest.ROOT / arguments.build / "src" / "cli" / "plimsoll"
    head = contest.heading(f"Leaner optimizer state, the demo's model in bf16, {arguments.steps} steps of 4 x 128 bytes")
    report(head)
    rows, first = [], {}
    for master, moments, size in FORMS:
        cells = []
        for seed in arguments.seeds:
            train, valid = losses(arguments, program, master, moments, seed)
            known = first.setdefault(seed, train)
            same = next((step for step, (a, b) in enumerate(zip(train, known), 1) if a != b), 0)
            cells += [f"{sum(train[-20:]) / 20:.4f}", f"{valid:.4f}", "all" if same == 0 else f"{same - 1}"]
        rows.append([f"{master}, {moments}", f"{size} B", *cells])
        report(" ".join(rows[-1]))
    columns = [f"{what}, seed {seed}" for seed in arguments.seeds for what in ("last 20 losses", "validation", "steps alike")]
    text = contest.markdown_table(["master, moments", "a parameter", *columns], rows)
    report(text)
    note = "Steps alike: from the first on, how many losses are those of f32 masters and moments to the last bit."
    contest.write(arguments, "lean_states", "\n".join([head, text, "", note, ""]))


main()
