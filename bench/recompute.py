#!/usr/bin/env python3
"""What making activations again costs: training steps of GPT-2 124M with everything kept and with each form of recompute.

    ./dev bench recompute                 # everything, written to bench/results/recompute.md
    ./dev bench recompute --quick --model gpt2-tiny

"Optimal" may use half of the activation memory. It stands against the uniform choices that stay within the same memory: inputs
kept of every 1, 2, 3 or 4 blocks.
"""

import argparse

from peers import contest
from peers.contest import Contender, report


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.add_argument("--model", default="gpt2", choices=["gpt2", "gpt2-medium", "gpt2-tiny"])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    return contest.parse(parser)


def sides(arguments):
    steps = [contest.our_program(arguments, "steps"), "--model", arguments.model, "--samples", arguments.samples, "--sequence",
             arguments.sequence, "--warmup", arguments.warmup, "--threads", arguments.threads]
    kept = Contender("everything kept", steps)
    # In two sides, each with its own run that keeps everything: all at once would not fit into 24 GiB.
    return [
        [kept, Contender("full", [*steps, "--recompute", "full"]), Contender("selective", [*steps, "--recompute", "selective"]),
         Contender("optimal, half the memory", [*steps, "--recompute", "optimal", "--recompute-memory", 0.5])],
        [Contender("everything kept", steps),
         *(Contender(f"full, every {every} blocks", [*steps, "--recompute", "full", "--recompute-every", every]) for every in (2, 3, 4))],
    ]


def main():
    arguments = parse()
    head = contest.heading(f"Recompute, {arguments.model}, {arguments.samples} x {arguments.sequence} tokens, f32, AdamW")
    report(head)
    over, activations, rows = {}, {}, []
    for first, *others in sides(arguments):
        result = contest.hold(first, others, arguments.repeats)
        for contender in (result.ours, *result.peers):
            over[contender.label] = contender.best / result.ours.best - 1
            activations[contender.label] = contender.summary["activation_bytes"]
        rows += contest.timing_rows(result, lambda contender: f"{contender.summary['activation_bytes'] / 2**20:.1f} MiB")
    half = activations["everything kept"] / 2
    uniform = {label: over[label] for label in over if label.startswith("full") and activations[label] <= half}
    best = min(uniform, key=uniform.get)
    text = contest.markdown_table([*contest.TIMING_HEADER, "activations"], rows)
    figures = contest.markdown_table(["figure", "wanted", "measured"], [
        ["time of full over everything kept", "+33% at most", f"{over['full']:+.1%}"],
        ["time of optimal at half the activation memory", f"+15% at most, less than the best uniform choice ({best}: {uniform[best]:+.1%})",
         f"{over['optimal, half the memory']:+.1%}"],
        ["activations of optimal", f"{half / 2**20:.1f} MiB at most", f"{activations['optimal, half the memory'] / 2**20:.1f} MiB"],
    ])
    report(text + "\n\n" + figures)
    contest.write(arguments, "recompute", "\n".join([head, figures, "", text, ""]))


main()
