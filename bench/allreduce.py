#!/usr/bin/env python3
"""All-reduce of 64 MB of f32 on this machine: our transports beside gloo and MPI_Allreduce.

    ./dev bench allreduce                     # written to bench/results/allreduce.md
    ./dev bench allreduce --quick             # one turn each, nothing written

Ranks wait for each other by spinning in MPI, so contenders cannot wait side by side as in the other benchmarks: each turn starts
every one of them afresh, one after another, and the best of all steps counts. Bytes/s are those of the tensor over the time.
"""

import argparse
import json
import os
import statistics
import subprocess

from peers import contest
from peers.contest import report

TARGETS = {"threads": 1.5, "mpi": 0.95}
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--steps", type=int, default=10, help="timed steps in a turn (default: %(default)s)")
    parser.set_defaults(repeats=3)
    arguments = contest.parse(parser)
    if arguments.quick:
        arguments.repeats = 1
    return arguments


def contenders(arguments, ranks):
    options = ["--bytes", arguments.bytes, "--steps", arguments.steps]
    program = contest.our_program(arguments, "allreduce")
    mpirun = ["mpirun", "--oversubscribe", "-n", ranks]
    return {"threads": [program, *options, "--ranks", ranks],
            "processes": [program, *options, "--transport", "processes", "--ranks", ranks],
            "mpi": [*mpirun, program, *options, "--transport", "mpi"],
            "MPI_Allreduce": [*mpirun, program, *options, "--transport", "raw-mpi"],
            "gloo": [*contest.peer_script(arguments, "gloo_allreduce.py"), *options, "--ranks", ranks]}


def seconds_of(command):
    done = subprocess.run([str(word) for word in command], cwd=contest.ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise contest.Lost((done.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])["seconds"]


def hold(arguments, ranks):
    """Best and median seconds by contender; why others are not there."""
    taken, absent = {}, {}
    for turn in range(arguments.repeats):
        names = list(contenders(arguments, ranks).items())
        for name, command in names if turn % 2 == 0 else reversed(names):
            if name in absent:
                continue
            try:
                taken.setdefault(name, []).extend(seconds_of(command))
            except (contest.Lost, OSError, ValueError, subprocess.TimeoutExpired) as failure:
                absent[name] = str(failure)
                taken.pop(name, None)
    return taken, absent


def section(arguments, ranks):
    taken, absent = hold(arguments, ranks)
    rows = [[name, f"{min(each) * 1e3:.1f}", f"{statistics.median(each) * 1e3:.1f}", f"{arguments.bytes / min(each) / 1e9:.2f}"]
            for name, each in taken.items()]
    text = f"## {ranks} ranks\n\n" + contest.markdown_table(["", "best ms", "median ms", "GB/s"], rows)
    text += "".join(f"\n\nNot there: {name}: {reason}" for name, reason in absent.items())
    peers = {name: min(taken[name]) for name in ("MPI_Allreduce", "gloo") if name in taken}
    figures = []
    if peers and "threads" in taken:
        peer = min(peers, key=peers.get)
        figures.append([f"threads, bytes/s of {peer}", f"at least {TARGETS['threads']}x", f"{peers[peer] / min(taken['threads']):.2f}x"])
    if "MPI_Allreduce" in peers and "mpi" in taken:
        figures.append(["mpi, bytes/s of MPI_Allreduce", f"at least {TARGETS['mpi']}x", f"{peers['MPI_Allreduce'] / min(taken['mpi']):.2f}x"])
    return text + "\n\n" + contest.markdown_table(["figure", "wanted", "found"], figures)


def main():
    arguments = parse()
    head = contest.heading(f"All-reduce of {arguments.bytes >> 20} MB of f32")
    report(head)
    sections = []
    for ranks in (2, 4):
        sections.append(section(arguments, ranks))
        report(sections[-1] + "\n")
    contest.write(arguments, "allreduce", head + "\n" + "\n\n".join(sections))


main()
