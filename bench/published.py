#!/usr/bin/env python3
"""Runs that others published, against what the simulator says of the same model, devices and layout.

Every row is simulated (`plimsoll simulate`) on a preset of the device; no row but the two marked in
tests/executor_sim/published_test.cpp has set any constant. The table goes to bench/results/published_runs.md, with the median and the worst
error of each source.

    ./dev bench published              # all rows, under a minute
    ./dev bench published --only mpt   # the sources whose name contains this
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

from published_rows import SLOWER, SOURCES

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "build/release/src/cli/plimsoll"

NOTES = [
    "Where the difference is beyond 10%: the 30B with 8,192 tokens on A100s and the 5B on H100s are slower than their neighbours in the "
    "same tables (of the first, memory was as good as full). Megatron-LM of 2019 and of MegaScale's comparison reduces gradients when all "
    "of them are there, which counts the more the shorter a step is; here most of it goes on beside the backward pass. Nemotron's 8-bit "
    "runs, like the 5B, are of systems that quantize, add biases and activate in kernels of their own. The first figures of H100s are of "
    "kernels made for the device before. torchtitan's 405B gathers weights for tensor ranks while nothing else runs; its 8-bit runs make "
    "half of the products again. BLOOM's layouts were tried with every kernel waiting for the one before (CUDA_LAUNCH_BLOCKING), which "
    "costs most where micro-batches are small; it, GPT-NeoX and OPT are by systems whose pipelines or shards move data while nothing is "
    "computed. Figures of sources that say so were written down from memory and not compared with the papers."]


def simulate(folder, entry, preset, changes):
    """Simulated tokens a second of one device; None with the reason where it cannot be."""
    run = {"model": entry["model"], "batch": dict(zip(("global", "micro", "sequence"), entry["batch"])), "precision": entry["precision"],
           "strategy": entry["strategy"], "optimizer": entry.get("optimizer", {}), "steps": 1000, "device": "cuda"}
    (folder / "run.json").write_text(json.dumps(run))
    per_node = 16 if preset.startswith("dgx2") else 8
    (folder / "cluster.json").write_text(json.dumps({"preset": f"{preset}:{-(-entry['devices'] // per_node)}", **changes}))
    done = subprocess.run([BINARY, "simulate", folder / "run.json", "--cluster", folder / "cluster.json", "--json"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        return None, done.stderr.strip()
    batch, _, sequence = entry["batch"]
    return batch * sequence / entry["devices"] / json.loads(done.stdout)["step_seconds"], ""


def table(folder, sources, only):
    lines = []
    for source, (preset, changes), rows in sources:
        if only and only.lower() not in source.lower():
            continue
        errors = []
        body = []
        for entry in rows:
            tokens, reason = simulate(folder, entry, preset, changes)
            if tokens is None:
                body.append(f"| {entry['name']} | {entry['published']:,.0f} | {reason} | |")
                continue
            errors.append(tokens / entry["published"] - 1)
            body.append(f"| {entry['name']} | {entry['published']:,.0f} | {tokens:,.0f} | {100 * errors[-1]:+.1f}% |")
        if errors:
            summary = (f"median error {100 * statistics.median(map(abs, errors)):.1f}%, worst {100 * max(map(abs, errors)):.1f}%, "
                       f"mean {100 * statistics.mean(errors):+.1f}%")
            print(f"{source}: {summary}")
            lines += [f"**{source}**: {summary}.", "", "| run | published | simulated | difference |", "|---|---|---|---|", *body, ""]
    return lines


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip() or "no commit"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="sources whose name contains this")
    parser.add_argument("--out", default=ROOT / "bench/results/published_runs.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = ["# Published runs, row by row", "",
                 f"Made by `./dev bench published` at {commit()}: tokens a second of one device, beside `plimsoll simulate` on the preset "
                 "of that device. No constant was fitted to these rows, but how attention depends on length, and that computing is slower "
                 "beside a collective, were settled with some of them in sight ([which, and what was said of the others "
                 "before](published.md)).", "", *table(folder, SOURCES, options.only),
                 "Slower than their layout makes necessary (how much was left, not how far the simulator is off):", "",
                 *table(folder, SLOWER, options.only), *NOTES]
    if not options.only:
        pathlib.Path(options.out).write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
