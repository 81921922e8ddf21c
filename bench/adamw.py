#!/usr/bin/env python3
"""The AdamW update of GPT-2 124M's parameters, ours beside torch's fused one and DeepSpeedCPUAdam.

    ./dev bench adamw                         # written to bench/results/adamw.md
    ./dev bench adamw --quick                 # two rounds against torch, nothing written

All work is f32 and 28 bytes a parameter. A plain loop that moves the same bytes shows what the machine's memory allows.
"""

import argparse

from peers import contest
from peers.contest import Contender, report

TARGET = 0.95
LOOP = "plain loop"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.set_defaults(repeats=15)
    return contest.parse(parser)


def hold(arguments):
    options = contest.serve_options(arguments)
    program = [contest.our_program(arguments, "adamw"), *options]
    peer = [*contest.peer_script(arguments, "torch_adamw.py"), *options, "--peer"]
    peers = [Contender("torch fused", [*peer, "torch"]), Contender("DeepSpeedCPUAdam", [*peer, "deepspeed"])]
    loop = Contender(LOOP, [*program, "--kind", "stream"])
    return contest.hold(Contender("Plimsoll", program), [loop, *(peers[:1] if arguments.quick else peers)], arguments.repeats)


def main():
    arguments = parse()
    head = contest.heading(f"AdamW update of GPT-2 124M, f32, {arguments.threads} threads")
    report(head)
    result = hold(arguments)
    rows = contest.timing_rows(result, lambda contender: f"{contender.summary['parameters_per_second'] / 1e6:.0f}")
    for row, contender in zip(rows, (result.ours, *result.peers)):
        row.append(f"{contender.summary['bytes_per_second'] / 1e9:.2f}")
    text = contest.markdown_table([*contest.TIMING_HEADER, "M parameters/s", "GB/s"], rows)
    text += "".join(f"\n\nNot there: {reason}" for reason in result.absent)
    loop = next(peer for peer in result.peers if peer.label == LOOP)
    result.peers.remove(loop)
    figures = [["update, parameters/s", f"at least {TARGET}x", contest.ratio_text(result)],
               ["of the loop's rate", "-", f"{loop.best / result.ours.best:.2f}x"]]
    text += "\n\n" + contest.markdown_table(["figure", "wanted", "found"], figures)
    report(text)
    contest.write(arguments, "adamw", f"{head}\n{text}")


main()
