#!/usr/bin/env python3
"""Faults of machines: a run of MPI ranks on 2 or 4 of them loses a rank, a machine or its network, and then goes on as if nothing had been.

    ./dev faults                 # 50 of them, drawn by --seed
    ./dev faults --count 6       # one of each kind, as CI does

The machines are network namespaces with links of 1 Gbit/s (tools/machines.py), which only root can make. For each fault: nobody hangs, the lost
rank is named, the run's processes are gone, and after it the same run, started again, leaves the losses and the checkpoint of a run that
nothing happened to. With signs of life missed for a second (--silence), a lost rank is named within 2 s of the fault, and all end within 5.
"""

import argparse
import json
import hashlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import machines

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMING = 1.0  # seconds beyond limits.silence until a lost rank is named
STOPPING = 4.0  # and until all ranks that can be reached have ended
LAUNCHER = 30.0  # seconds until mpirun, which looks for the machine that is gone, has ended too
TO_END = 240.0  # of a run without a fault
LOST = 4


@dataclass
class Layout:
    name: str
    ranks: list  # on each machine
    strategy: dict


LAYOUTS = [
    Layout("data 2", [1, 1], {"data": 2}),
    Layout("data 4, ZeRO 3 in groups of a machine", [2, 2], {"data": 4, "zero": 3, "zero_group": 2}),
    Layout("pipe 2 x tensor 2", [2, 2], {"pipe": 2, "tensor": 2, "schedule": "1f1b"}),
    Layout("data 4 on 4 machines, ZeRO 2", [1, 1, 1, 1], {"data": 4, "zero": 2}),
    Layout("pipe 4 on 4 machines", [1, 1, 1, 1], {"pipe": 4, "schedule": "zb-h1"}),
]

KINDS = ["a rank is killed", "a rank stops", "a machine loses its power", "a link is cut", "a link becomes slow", "the first rank is killed"]


@dataclass
class Fault:
    number: int
    kind: str
    layout: Layout
    step: int  # after which it happens
    rank: int  # to which, or to whose machine


def machine_of(layout, rank):
    for number, ranks in enumerate(layout.ranks, 1):
        if rank < ranks:
            return number
        rank -= ranks
    raise ValueError(rank)


def draw(count, seed):
    draws = random.Random(seed)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        layout = LAYOUTS[(number + number // len(KINDS)) % len(LAYOUTS)]
        # The first machine is mpirun's own: without it there is nobody left to start anything.
        away = layout.ranks[0] if kind in ("a machine loses its power", "a link is cut", "a link becomes slow") else 1
        rank = 0 if kind.startswith("the first") else draws.randrange(away, sum(layout.ranks))
        yield Fault(number + 1, kind, layout, draws.randrange(3, 24), rank)


class Run:
    def __init__(self, program, folder, net, layout, silence, steps=30):
        self.folder, self.net, self.layout, self.program, self.steps = folder, net, layout, program, steps
        folder.mkdir()
        text = "".join(f"the quick brown fox jumps over the lazy dog number {line}\n" for line in range(400))
        (folder / "train.txt").write_text(text)
        run = {"model": {"family": "gpt2", "layers": 4, "width": 32, "heads": 4, "context": 32, "vocab": 256, "dropout": 0.1},
               "data": {"train": str(folder / "train.txt")}, "batch": {"global": 8, "micro": 2, "sequence": 16}, "strategy": layout.strategy,
               "steps": steps, "threads": 1, "eval": {"every": 0}, "checkpoint": {"every": 6}, "limits": {"silence": silence, "wait": 30},
               "out": str(folder / "out")}
        (folder / "run.json").write_text(json.dumps(run, indent=1))

    def start(self):
        command = self.net.mpirun(self.layout.ranks, [str(self.program), "train", str(self.folder / "run.json")])
        environment = dict(os.environ, OMP_NUM_THREADS="1", **self.net.environment())
        self.err = open(self.folder / "err", "wb")
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=self.err, env=environment, start_new_session=True)

    def said(self):
        return (self.folder / "err").read_text(errors="replace")

    def losses(self):
        metrics = self.folder / "out" / "metrics.jsonl"
        lines = [json.loads(line) for line in metrics.read_text().splitlines() if line.endswith("}")] if metrics.is_file() else []
        return [line["loss"] for line in lines if "loss" in line]

    def digest(self):
        saved = sorted((self.folder / "out" / "checkpoints").glob(f"step-*{self.steps}"))
        whole = hashlib.sha256()
        for file in sorted(saved[-1].glob("data-*.bin")) if saved else []:
            whole.update(file.read_bytes())
        return whole.hexdigest()

    # The ranks' processes, by rank.
    def ranks(self):
        found = {}
        for number in range(1, self.net.count + 1):
            for pid in self.net.processes(number):
                try:
                    variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if command[0] != str(self.program).encode():
                    continue
                for variable in variables:
                    if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found.setdefault(int(variable.split(b"=")[1]), pid)
        return found

    def ends(self, process, limit=TO_END):
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        return process.returncode


def cause(fault, run, net, ranks):
    machine = machine_of(fault.layout, fault.rank)
    if fault.kind.endswith("is killed"):
        os.kill(ranks[fault.rank], signal.SIGKILL)
    elif fault.kind == "a rank stops":
        os.kill(ranks[fault.rank], signal.SIGSTOP)
    elif fault.kind == "a machine loses its power":
        net.power_off(machine)
    elif fault.kind == "a link is cut":
        net.cut(machine)
    else:
        net.set_rate(machine, "2mbit")


# Those of a machine that cannot be reached are all lost: whichever is named, it is right; so is the machine, by mpirun.
def names_the_lost(fault, said, net):
    lost = [rank for rank in range(sum(fault.layout.ranks)) if machine_of(fault.layout, rank) == machine_of(fault.layout, fault.rank)]
    if "rank" in fault.kind:
        lost = [fault.rank]
    elif f"on node {net.address(machine_of(fault.layout, fault.rank))}" in said:
        return True
    return any(re.search(rf"rank {rank} (is gone|gave no sign|did not come)|process rank {rank} with PID", said) for rank in lost)


def wait_until(holds, seconds):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# What is left of the run on machines that can be reached from the first one.
def remain(fault, run, net):
    away = machine_of(fault.layout, fault.rank) if fault.kind in ("a machine loses its power", "a link is cut") else 0
    return [rank for rank, _ in run.ranks().items() if machine_of(fault.layout, rank) != away]


def put_through(fault, program, folder, golden, silence):
    problems, named, stopped = [], None, None
    with machines.Machines(len(fault.layout.ranks)) as net:
        run = Run(program, folder, net, fault.layout, silence)
        process = run.start()
        if not wait_until(lambda: len(run.losses()) >= fault.step or process.poll() is not None, TO_END):
            problems.append("it did not begin to train")
        ranks = run.ranks()
        begin = time.monotonic()
        if process.poll() is None and fault.rank in ranks:
            cause(fault, run, net, ranks)
        else:
            problems.append(f"the run had ended, or its rank {fault.rank} was gone, before the fault")
        if fault.kind == "a link becomes slow":
            code = run.ends(process)
            if code != 0:
                problems.append(f"it ended with {code}: {run.said()[-400:]}")
        elif process.poll() is None:
            if wait_until(lambda: names_the_lost(fault, run.said(), net), silence + NAMING + 10):
                named = time.monotonic() - begin
            if wait_until(lambda: not remain(fault, run, net), silence + STOPPING + 10):
                stopped = time.monotonic() - begin
            if named is None or named > silence + NAMING:
                problems.append(f"the lost rank was named after {named and round(named, 1)} s: {run.said()[-400:]}")
            if stopped is None or stopped > silence + STOPPING:
                problems.append(f"stopped after {stopped and round(stopped, 1)} s: ranks {remain(fault, run, net)}, mpirun {process.poll()}")
            if not wait_until(lambda: process.poll() is not None, LAUNCHER):
                problems.append(f"mpirun did not end within {LAUNCHER:.0f} s")
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.returncode == 0:
                problems.append("it ended with 0")
    # The machines are there again, with what is on disk.
    with machines.Machines(len(fault.layout.ranks)) as net:
        again = Run.__new__(Run)
        again.__dict__.update(run.__dict__, net=net)
        code = again.ends(again.start())
        if code != 0:
            problems.append(f"started again, it ended with {code}: {again.said()[-400:]}")
        elif (again.losses(), again.digest()) != golden:
            problems.append("started again, it left other losses or another checkpoint")
    return named, stopped, problems


def golden_of(layout, program, folder, silence):
    with machines.Machines(len(layout.ranks)) as net:
        run = Run(program, folder, net, layout, silence)
        begin = time.monotonic()
        if (code := run.ends(run.start())) != 0:
            raise RuntimeError(f"{layout.name} does not run: {code} after {time.monotonic() - begin:.0f} s and {len(run.losses())} steps: {run.said()[-600:]}")
        return run.losses(), run.digest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/src/cli/plimsoll")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--silence", type=float, default=1.0, help="limits.silence; more where the machine is too busy to give signs of life")
    parser.add_argument("--only", default="", help="faults whose kind contains this")
    arguments = parser.parse_args()
    if why := machines.why_none():
        sys.exit(f"faults: no machines can be made here: {why}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("faults: ended"))  # machines are taken down on the way out
    failed, ran, begin, goldens = 0, 0, time.monotonic(), {}
    print("| fault | layout | after step | named | stopped | |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="plimsoll-faults-") as name:
        folder = pathlib.Path(name)
        for fault in draw(arguments.count, arguments.seed):
            if arguments.only not in fault.kind:
                continue
            if fault.layout.name not in goldens:
                goldens[fault.layout.name] = golden_of(fault.layout, arguments.program, folder / f"golden-{len(goldens)}", arguments.silence)
            named, stopped, problems = put_through(fault, arguments.program, folder / f"fault-{fault.number}", goldens[fault.layout.name], arguments.silence)
            failed += bool(problems)
            ran += 1
            seconds = ["" if one is None else f"{one:.1f} s" for one in (named, stopped)]
            print(f"| {fault.kind}: {fault.rank} | {fault.layout.name} | {fault.step} | {seconds[0]} | {seconds[1]} | {'FAILS' if problems else 'ok'} |", flush=True)
            for problem in problems:
                print(f"  {problem}", file=sys.stderr, flush=True)
    if not ran:
        sys.exit(f"faults: no kind contains '{arguments.only}'; there are: {', '.join(KINDS)}")
    print(f"\n{failed} of {ran} fail; seed {arguments.seed}, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if failed else 0)


main()
