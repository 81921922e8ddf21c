#!/usr/bin/env python3
"""Training steps of GPT-2 124M on two data ranks, ours and PyTorch's, each against its own single rank.

    ./dev bench ranks                     # everything, written to bench/results/ranks.md
    ./dev bench ranks --quick --model gpt2-tiny

All do the same global batch. One rank has all threads, two ranks have half each, so that what is compared is what it costs
to be two: the copies, the collectives, what of them cannot be hidden. A peer's ratio is taken within the peer. Two loops that only count
show what the machine itself takes of a step meanwhile: neighbours on it, its own services.
"""

import argparse

from peers import contest
from peers.contest import Contender, report

BARE = 3.8  # seconds of processor time: about a step's
BARE_LABEL = "two bare loops"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.add_argument("--model", default="gpt2", choices=["gpt2", "gpt2-medium", "gpt2-tiny"])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    return contest.parse(parser)


def contenders(arguments):
    ours = [contest.our_program(arguments, "steps"), "--model", arguments.model, "--samples", arguments.samples, "--sequence",
            arguments.sequence, "--warmup", arguments.warmup]
    torch = [*contest.peer_script(arguments, "torch_train.py"), "--size", arguments.model, "--batch", arguments.samples, "--sequence",
             arguments.sequence, "--warmup", arguments.warmup]
    whole, half = ["--threads", arguments.threads], ["--threads", arguments.threads // 2]
    return [
        [Contender("Plimsoll, one rank", [*ours, *whole]),
         Contender("Plimsoll, two ranks", [*ours, *half, "--data", 2]),
         Contender("Plimsoll, two ranks, ZeRO 3", [*ours, *half, "--data", 2, "--zero", 3]),
         Contender(BARE_LABEL, [*ours, *half, "--data", 2, "--bare", BARE])],
        [Contender("torch, one rank", [*torch, *whole]),
         Contender("torch, two ranks (DDP)", [*torch, *half, "--ranks", 2]),
         Contender("torch, two ranks (FSDP2)", [*torch, *half, "--ranks", 2, "--shard"])],
    ]


def ratio(by_name, above, below):
    return f"{by_name[above].best / by_name[below].best:.2f}" if above in by_name and below in by_name else "not there"


def over_compute(contender, lost=0.0):
    """What the least disturbed step takes beyond the computation of its slowest rank and what the machine took, in units of the processor
    time of its collectives."""
    summary = contender.summary if contender else {}
    if not summary.get("collectives_processor"):
        return "not there"
    beyond = (summary["wall"] - summary["compute_processor"] - lost) / summary["collectives_processor"]
    taken = f", {1e3 * lost:.0f} taken by the machine" if lost else ""
    return (f"{beyond:.2f} ({1e3 * summary['wall']:.0f} ms, {1e3 * summary['compute_processor']:.0f} of computation, "
            f"{1e3 * summary['collectives_processor']:.1f} of collectives{taken})")


def main():
    arguments = parse()
    head = contest.heading(f"Two data ranks, {arguments.model}, {arguments.samples} x {arguments.sequence} tokens, f32, AdamW")
    report(head)
    by_name, rows, absent = {}, [], []
    tokens = arguments.samples * arguments.sequence
    # One side after the other: all of them at once would not fit into 24 GiB, and ratios are taken within a side.
    for first, *others in contenders(arguments):
        try:
            result = contest.hold(first, others, arguments.repeats)
        except contest.Lost as failure:
            absent.append(str(failure))
            continue
        by_name |= {contender.label: contender for contender in (result.ours, *result.peers)}
        rows += contest.timing_rows(result, lambda contender: "-" if contender.label == BARE_LABEL else f"{tokens / contender.best:.1f}")
        absent += result.absent
    loops = by_name.pop(BARE_LABEL, None)
    lost = loops.summary["lost"] if loops else 0.0
    text = contest.markdown_table([*contest.TIMING_HEADER, "tokens/s"], rows)
    text += "".join(f"\n\nNot there: {reason}" for reason in absent)
    figures = contest.markdown_table(["figure", "wanted", "ours", "PyTorch's own"], [
        ["tokens/s of two ranks over one", "0.9 or more, above PyTorch's", ratio(by_name, "Plimsoll, one rank", "Plimsoll, two ranks"),
         ratio(by_name, "torch, one rank", "torch, two ranks (DDP)")],
        ["step time of ZeRO 3 over ZeRO 0", "1.15 or less", ratio(by_name, "Plimsoll, two ranks, ZeRO 3", "Plimsoll, two ranks"),
         ratio(by_name, "torch, two ranks (FSDP2)", "torch, two ranks (DDP)")],
        ["step time beyond computation, over the collectives' own processor time", "1.1 or less",
         over_compute(by_name.get("Plimsoll, two ranks")), "-"],
        [f"the same less what the machine takes of two loops of {BARE} s", "1.1 or less",
         over_compute(by_name.get("Plimsoll, two ranks"), lost), "-"],
        ["the same with ZeRO 3", "-", over_compute(by_name.get("Plimsoll, two ranks, ZeRO 3"), lost), "-"],
    ])
    report(text + "\n\n" + figures)
    contest.write(arguments, "ranks", "\n".join([head, figures, "", text, ""]))


main()
