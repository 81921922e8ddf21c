#!/usr/bin/env python3
"""Training steps of GPT-2 124M, ours and PyTorch's side by side: tokens/s, memory, and the time of planning.

    ./dev bench gpt2                          # everything, written to bench/results/gpt2.md
    ./dev bench gpt2 --quick --only f32       # two rounds against eager PyTorch, nothing written

Peers are torch eager and torch.compile (bench/peers/torch_train.py); the faster one counts. "Without bf16 instructions"
imitates such a CPU on one that may have them: PyTorch gets ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI, which limits its oneDNN but
not what it computes without oneDNN, and ours gets PLIMSOLL_ISA=avx512, which limits everything.

In f32 one more takes part: the multiplications of a step's matrix products alone, in registers. Nobody can be faster, so its
time against the fastest peer's is the most that any program could reach on this machine.
"""

import argparse
import itertools
import json
from dataclasses import dataclass

from peers import contest
from peers.contest import Contender, report


@dataclass
class Work:
    name: str
    options: list
    target: float | None = None
    memory_target: float | None = None
    environment: dict | None = None
    floor: bool = False


NO_BF16 = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "PLIMSOLL_ISA": "avx512"}
WORKS = [
    Work("f32, dropout 0", ["--precision", "f32", "--dropout", "0"], target=1.5, memory_target=0.7, floor=True),
    Work("f32, dropout 0.1", ["--precision", "f32", "--dropout", "0.1"], target=1.8, floor=True),
    Work("bf16, dropout 0, without bf16 instructions", ["--precision", "bf16", "--dropout", "0"], target=3.0, environment=NO_BF16),
    Work("bf16, dropout 0, with all instructions", ["--precision", "bf16", "--dropout", "0"]),
]
PLANNING_TARGET = 0.050
PLANS = 20


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.add_argument("--model", default="gpt2", choices=["gpt2", "gpt2-medium", "gpt2-tiny"])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--only", default="", help="work whose name contains this")
    return contest.parse(parser)


def our_command(arguments):
    return [contest.our_program(arguments, "steps"), "--model", arguments.model, "--samples", arguments.samples, "--sequence",
            arguments.sequence, "--threads", arguments.threads]


def hold(arguments, work):
    peer = [*contest.peer_script(arguments, "torch_train.py"), "--size", arguments.model, "--batch", arguments.samples, "--sequence",
            arguments.sequence, *contest.serve_options(arguments), *work.options]
    environment = work.environment or {}
    ours = Contender("Plimsoll", [*our_command(arguments), "--warmup", arguments.warmup, *work.options], environment)
    peers = [Contender("torch eager", peer, environment), Contender("torch.compile", [*peer, "--compile"], environment)]
    floor = Contender("the multiplications alone", [*our_command(arguments), "--floor", *work.options]) if work.floor else None
    return contest.hold(ours, peers[:1] if arguments.quick else peers, arguments.repeats, floor)


def gib(count):
    return f"{count / 2**30:.3f}"


def show(arguments, work, result):
    """The text of one piece of work and its line in the table of figures."""
    tokens = arguments.samples * arguments.sequence
    rows = contest.timing_rows(result, lambda contender: f"{tokens / contender.best:.1f}")
    for row, contender in itertools.zip_longest(rows, (result.ours, *result.peers)):
        row += ["-", "-"] if contender is None else [gib(contender.summary["peak_rss_bytes"]), f"{contender.summary['last_loss']:.3f}"]
    text = contest.markdown_table([*contest.TIMING_HEADER, "tokens/s", "peak GiB", "last loss"], rows)
    text += "".join(f"\n\nNot there: {reason}" for reason in result.absent)
    figure = [f"tokens/s, {work.name}", f"at least {work.target}x" if work.target else "-", contest.ratio_text(result)]
    return text, figure


def memory_figure(work, result):
    """Resident memory against the peer that takes least, and against what our plan predicts."""
    own = result.ours.summary
    predicted = own["arena_bytes"] + own["reserve_bytes"]
    found = f"{gib(own['peak_rss_bytes'])} GiB; predicted {gib(own['arena_bytes'])} of arena + {gib(own['reserve_bytes'])} beside it, " \
            f"measured is {own['peak_rss_bytes'] / predicted:.3f} of that"
    if result.peers:
        least = min(result.peers, key=lambda peer: peer.summary["peak_rss_bytes"])
        found = f"{own['peak_rss_bytes'] / least.summary['peak_rss_bytes']:.2f}x of {least.label}: {found}"
    return [f"peak resident memory, {work.name}", f"{work.memory_target}x or less" if work.memory_target else "-", found]


def planning_figure(arguments):
    taken = json.loads(contest.output_of(*map(str, [*our_command(arguments), "--plan", "--steps", PLANS])))["step_seconds"]
    found = f"{1e3 * taken['best']:.1f} ms (median {1e3 * taken['median']:.1f}, {PLANS} plans)"
    return ["planning one rank", f"under {1e3 * PLANNING_TARGET:.0f} ms", found]


def main():
    arguments = parse()
    batch = f"{arguments.samples} x {arguments.sequence} tokens"
    head = contest.heading(f"Training {arguments.model}, {batch}, AdamW, {arguments.threads} threads")
    report(head)
    sections, figures = [], []
    for work in WORKS:
        if arguments.only not in work.name:
            continue
        report(f"## {work.name}\n")
        result = hold(arguments, work)
        text, figure = show(arguments, work, result)
        report(text + "\n")
        sections.append(f"## {work.name}\n\n{text}\n")
        figures += [figure, memory_figure(work, result)]
    figures.append(planning_figure(arguments))
    table = contest.markdown_table(["figure", "wanted", "found"], figures)
    report(table)
    contest.write(arguments, "gpt2", "\n".join([head, table, "", *sections]))


main()
