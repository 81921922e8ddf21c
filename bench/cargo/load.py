"""Reading into memory: a safetensors file and a checkpoint, warm and cold, beside a bare read of a file of that size and
beside a copy from memory to memory.

Sums are made of each piece on its way, so what they cost cannot be timed apart: it is the processor time that a load takes beyond that of
moving the same blocks, from the page cache or the drive, without summing them."""

import tempfile
from pathlib import Path

from peers import contest
from peers.contest import ROOT, Contender

DOC = "safetensors and checkpoints into memory, against memory's and the drive's own rate"
TARGET = 80  # % of the rate
SUMS_TARGET = 3.0  # % of the load


def hold(arguments, folder, cold):
    program = contest.our_program(arguments, "checkpoint")
    kinds = [("safetensors", "safetensors"), ("checkpoint, summed", "load"), ("blocks, not summed", "blocks"), ("bare read", "read")]
    kinds += [] if cold else [("memory to memory", "copy")]
    contenders = []
    for label, kind in kinds:
        command = [program, "--threads", arguments.threads, "--warmup", 1, "--megabytes", 498, "--kind", kind, "--folder", folder / kind]
        contenders.append(Contender(label, [*command, "--cold"] if cold else command))
    return contest.hold(contenders[0], contenders[1:], arguments.repeats)


def run(arguments):
    rows, figures = [], []
    for cold in (False, True):
        with tempfile.TemporaryDirectory(dir=ROOT / arguments.build) as name:
            result = hold(arguments, Path(name), cold)
        state = "cold" if cold else "warm"
        all_of_them = {one.label: one for one in (result.ours, *result.peers)}
        for one in all_of_them.values():
            rows.append([f"{one.label}, {state}", f"{one.best:.3f}", f"{one.median:.3f}", f"{one.summary['bytes_per_second'] / 1e9:.2f}"])
        own = all_of_them["bare read" if cold else "memory to memory"]
        for label in ("safetensors", "checkpoint, summed"):
            share = 100 * own.best / all_of_them[label].best
            figures.append([f"{label}, {state}, of {own.label}", f"{TARGET}%", f"{share:.0f}%"])
        load, bare = all_of_them["checkpoint, summed"], all_of_them["blocks, not summed"]
        extra = load.summary["step_cpu_seconds"]["best"] - bare.summary["step_cpu_seconds"]["best"]
        figures.append([f"what a {state} load's {arguments.threads} threads work more than for {bare.label}, of its time", f"{SUMS_TARGET:.0f}%",
                        f"{100 * max(extra, 0) / arguments.threads / load.best:.1f}%"])
    table = contest.markdown_table(["498 MB", "best s", "median s", "GB/s"], rows)
    return table + "\n\n" + contest.markdown_table(["figure", "wanted", "found"], figures)
