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

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = ROOT / "build/release/src/cli/plimsoll"

# With kernels of 2023 and later: attention tile by tile. (The preset has the runs of 2021, which wrote all scores to memory.)
A100 = ("dgx-a100-80g", {"device": {"attention": "tiled"}})
H100 = ("dgx-h100", {})
# Slower memory, and 500 W instead of 700: a clock at 0.87 of the other, as power goes with its third power above what is drawn at rest.
H100_500W = ("dgx-h100", {"device": {"memory": "96GiB", "bandwidth": 2.4e12, "sustained_share": 0.59}})


def gpt(layers, width, heads, vocab=51200, context=2048):
    return {"family": "gpt2", "layers": layers, "width": width, "heads": heads, "context": context, "vocab": vocab}


def llama(layers, width, heads, kv_heads, ffn, vocab, context):
    return {"family": "llama", "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "vocab": vocab,
            "context": context}


def llama3(size, context=8192):
    shape = {"8B": (32, 4096, 32, 8, 14336), "70B": (80, 8192, 64, 8, 28672), "405B": (126, 16384, 128, 8, 53248)}[size]
    return llama(*shape, 128256, context)


def llama2(size, context=4096):
    shape = {"7B": (32, 4096, 32, 32, 11008), "13B": (40, 5120, 40, 40, 13824), "70B": (80, 8192, 64, 8, 28672)}[size]
    return llama(*shape, 32000, context)


def row(name, model, devices, batch, published, tensor=1, pipe=1, chunks=1, precision="bf16", **strategy):
    """`batch` is (global, micro, sequence); published are tokens a second of one device."""
    strategy = {"data": devices // (tensor * pipe), "tensor": tensor, "pipe": pipe, **strategy}
    if chunks > 1:
        strategy.update(chunks=chunks, schedule="interleaved")
    if tensor > 1:
        strategy.setdefault("sequence_parallel", True)
    return {"name": name, "model": model, "devices": devices, "batch": batch, "published": published, "precision": precision,
            "strategy": strategy}


def mpt(size, sequence, devices, micro, accumulation, published, again):
    shape = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
             "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64)}[size]
    strategy = {"recompute": "full"} if again else {}
    return row(f"MPT {size}, {devices} devices, {micro} x {sequence}{', full recompute' if again else ''}", gpt(*shape, 50368, sequence),
               devices, (micro * accumulation * devices, micro, sequence), published, zero=3, **strategy)


def zero_bubble(size, schedule, micro_batches, samples):
    layers, heads, width, pipe, micro = {"1.5B": (22, 24, 2304, 8, 6), "6.2B": (30, 32, 4096, 8, 3), "14.6B": (46, 40, 5120, 16, 1),
                                         "28.3B": (62, 48, 6144, 32, 1)}[size]
    stages = [(layers + 2) // pipe] * pipe  # the first and the last have one less, for embedding and head
    stages[0], stages[-1] = stages[0] - 1, stages[-1] - 1
    return row(f"{size}, {pipe} stages, {micro_batches} micro-batches, {schedule}", gpt(layers, width, heads, 50304, 1024), pipe,
               (micro * micro_batches, micro, 1024), 1024 * samples, pipe=pipe, schedule=schedule, stages=stages)


SOURCES = [
    ("MosaicML's llm-foundry, benchmarks of MPT models with FSDP (2023)", A100, [
        mpt("70b", 2048, 64, 8, 4, 410, True), mpt("70b", 2048, 32, 2, 16, 373, True), mpt("30b", 8192, 8, 1, 21, 574, True),
        mpt("30b", 4096, 8, 1, 21, 814, True), mpt("30b", 2048, 8, 3, 21, 916, True), mpt("30b", 512, 8, 12, 21, 967, True),
        mpt("13b", 32768, 8, 1, 3, 1016, True), mpt("13b", 16384, 8, 3, 3, 1431, True), mpt("13b", 8192, 8, 5, 3, 1795, True),
        mpt("13b", 4096, 8, 10, 3, 2060, True), mpt("13b", 2048, 8, 2, 3, 2262, False), mpt("13b", 1024, 8, 40, 3, 2330, True),
        mpt("7b", 65536, 8, 1, 2, 1013, True), mpt("7b", 8192, 8, 8, 2, 3206, True), mpt("7b", 2048, 8, 6, 2, 4641, False),
        mpt("7b", 1024, 8, 64, 2, 4357, True), mpt("3b", 16384, 8, 1, 6, 5529, False), mpt("3b", 2048, 8, 10, 2, 10811, False),
        mpt("3b", 512, 8, 40, 6, 12127, False), mpt("1b", 2048, 8, 14, 4, 20513, False), mpt("1b", 512, 8, 56, 4, 23148, False),
        mpt("760m", 2048, 8, 24, 2, 32434, False), mpt("350m", 2048, 8, 32, 2, 58782, False),
        mpt("125m", 2048, 8, 32, 2, 141737, False)]),
    ("PyTorch's torchtitan, Llama 2 and 3 with FSDP on A100s (2024)", A100, [
        row("Llama 2 13B", llama2("13B"), 64, (128, 2, 4096), 2162, zero=3),
        row("Llama 2 70B, full recompute", llama2("70B"), 64, (128, 2, 4096), 353, zero=3, recompute="full"),
        row("Llama 3 70B, full recompute", llama3("70B"), 64, (64, 1, 8192), 331, zero=3, recompute="full")]),
    ("NVIDIA's NeMo 24.07 and Megatron Bridge 25.09, 8-bit products on H100s", H100, [
        row("GPT 5B", gpt(24, 4096, 32), 64, (2048, 4, 2048), 22521, zero=1, precision="fp8"),
        row("GPT 20B, tensor 2", gpt(44, 6144, 48), 64, (256, 2, 2048), 5851, tensor=2, zero=1, precision="fp8"),
        row("GPT 175B, tensor 4, pipe 8, 6 chunks", gpt(96, 12288, 96), 128, (256, 1, 2048), 726, 4, 8, 6, "fp8", zero=1),
        row("GPT 175B on 512", gpt(96, 12288, 96), 512, (2048, 2, 2048), 782, 4, 8, 6, "fp8", zero=1),
        row("Llama 2 7B", llama2("7B"), 8, (128, 1, 4096), 16847, zero=1, precision="fp8"),
        row("Llama 2 13B, pipe 4, 10 chunks", llama2("13B"), 16, (128, 1, 4096), 8646, 1, 4, 10, "fp8", zero=1),
        row("Llama 2 70B, tensor 4, pipe 4, 20 chunks", llama2("70B"), 64, (128, 1, 4096), 1707, 4, 4, 20, "fp8", zero=1),
        row("Llama 3 8B, FSDP", llama3("8B"), 8, (128, 1, 8192), 14079, zero=3, precision="fp8"),
        row("Llama 3 70B, tensor 4, pipe 8, 5 chunks", llama3("70B"), 64, (128, 1, 8192), 1619, 4, 8, 5, "fp8", zero=1)]),
    ("Zero Bubble Pipeline Parallelism (ICLR 2024), table 4, as remembered", A100, [
        zero_bubble(size, schedule, count, samples)
        for size, counts, throughputs in (
            ("1.5B", (24, 32, 64), {"1f1b": (11.8, 12.5, 13.6), "zb-h1": (12.9, 13.4, 14.2), "zb-h2": (14.5, 14.8, 14.9)}),
            ("6.2B", (24, 32, 64), {"1f1b": (3.50, 3.70, 4.03), "zb-h1": (3.88, 4.00, 4.20), "zb-h2": (4.32, 4.35, 4.39)}),
            ("14.6B", (48, 64, 128), {"1f1b": (1.40, 1.49, 1.64), "zb-h1": (1.61, 1.67, 1.76), "zb-h2": (1.81, 1.83, 1.85)}),
            ("28.3B", (96, 128, 256), {"1f1b": (0.76, 0.80, 0.88), "zb-h1": (0.87, 0.90, 0.96), "zb-h2": (0.99, 1.00, 1.00)}))
        for schedule, values in throughputs.items() for count, samples in zip(counts, values)]),
]

# Where a published system leaves more behind than its layout must: how much faster the simulated one is.
SLOWER = [
    ("MosaicML's llm-foundry, first figures of H100s (2023)", H100, [
        mpt("70b", 2048, 64, 8, 4, 1039, True), mpt("30b", 2048, 32, 14, 3, 2308, True), mpt("13b", 1024, 8, 40, 3, 5502, True),
        mpt("13b", 4096, 8, 10, 3, 4717, True), mpt("7b", 2048, 8, 6, 1, 10643, False), mpt("3b", 512, 8, 40, 6, 27965, False)]),
    ("PyTorch's torchtitan on H100s of 500 W (2024); of the 8B, half of the products are made again there and all here", H100_500W, [
        row("Llama 3 8B on 8", llama3("8B"), 8, (16, 2, 8192), 6667, zero=3, recompute="full"),
        row("Llama 3 8B on 128", llama3("8B"), 128, (256, 2, 8192), 6514, zero=3, recompute="full"),
        row("Llama 3 405B, tensor 8, full recompute", llama3("405B"), 128, (32, 2, 8192), 109, tensor=8, zero=3, recompute="full")]),
]


NOTES = [
    "Where the difference is beyond 10%: the 30B with 8,192 tokens on A100s and the 5B on H100s are slower than their neighbours in the same "
    "tables (of the first, memory was as good as full). ZB-H2 (there ZB-2p) ends its stages one after the other, and the next step begins so "
    "too, since its optimizer waits for nobody; ours waits for the norm of all gradients. The first figures of H100s are of kernels made for "
    "the device before. torchtitan's 405B gathers weights for tensor ranks while nothing else runs."]


def simulate(folder, entry, preset, changes):
    """Simulated tokens a second of one device; None with the reason where it cannot be."""
    run = {"model": entry["model"], "batch": dict(zip(("global", "micro", "sequence"), entry["batch"])), "precision": entry["precision"],
           "strategy": entry["strategy"], "device": "cuda"}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "cluster.json").write_text(json.dumps({"preset": f"{preset}:{(entry['devices'] + 7) // 8}", **changes}))
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
                 f"Made by `./dev bench published` at {commit()}. Tokens a second of one device. No constant was fitted to these rows, "
                 "but how attention depends on length was settled with them in sight, so they are not a pure test of the model; what they are compared with is `plimsoll simulate` on the preset of the device. Earlier tables: "
                 "[published.md](published.md).", "", *table(folder, SOURCES, options.only),
                 "Slower than their layout makes necessary (how much was left, not how far the simulator is off):", "",
                 *table(folder, SLOWER, options.only), *NOTES]
    if not options.only:
        pathlib.Path(options.out).write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
