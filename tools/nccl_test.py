#!/usr/bin/env python3
"""Layouts of several ranks over NCCL on one GPU, and the faults they must live through, in one table.

    ./dev gpu-test --nccl                                 # all of it
    tools/nccl_test.py --program PATH --share 1/2         # half of the layouts, for where commands have a time limit
    tools/nccl_test.py --program PATH --faults --share 2/2

Each layout is trained by threads that share the GPU, by NCCL's ranks with canonical sums, which must leave the same bits in losses and
checkpoint, and with NCCL's own sums, which must be near. Ranks on one GPU take turns by time slices, which makes every collective slow.
NVIDIA's multi-process service would let them run at once, but gains nothing (11.1 s instead of 12.8 for four steps of two tensor ranks, most
of it NCCL's start), and a rank that is killed under it takes all others along. Everything that fails is listed, and the rest goes on.
"""

import argparse
import concurrent.futures
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import nccl_faults
from nccl_cases import FAULTS, layouts
from nccl_runs import Runs

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/cuda/src/cli/plimsoll")
    parser.add_argument("--share", default="1/1", help="K/N: every N-th case, from the K-th")
    parser.add_argument("--only", default="", help="cases whose name matches this regular expression")
    parser.add_argument("--faults", action="store_true", help="faults too")
    parser.add_argument("--no-layouts", action="store_true", help="faults alone")
    parser.add_argument("--jobs", type=int, default=2, help="layouts at a time")
    parser.add_argument("--limit", type=float, default=90, help="seconds for each run")
    parser.add_argument("--budget", type=float, default=560, help="seconds after which nothing more is begun")
    parser.add_argument("--local-only", action="store_true", help="threads alone, on the processor: whether the cases are legal")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here, and results beside it as .json")
    return parser.parse_args()


def relative(found, expected):
    return max((abs(a - b) / abs(b) for a, b in zip(found, expected)), default=float("inf"))


def judge(layout, local, canonical, fast):
    problems = [one.problem for one in (local, canonical, fast) if one and one.problem]
    if problems:
        return problems
    if canonical.losses != local.losses:
        problems.append(f"canonical sums: losses {canonical.losses} are not {local.losses}")
    if canonical.digest != local.digest:
        problems.append("canonical sums: the checkpoint has other bits")
    if len(fast.losses) != len(local.losses) or relative(fast.losses, local.losses) > layout.near:
        problems.append(f"NCCL's sums: losses {fast.losses} are not near {local.losses}")
    return problems


def run_layout(runs, arguments, layout):
    folder = runs.prepare(layout.name, layout.strategy, layout.settings)
    local = runs.local(folder, limit=arguments.limit)
    if local.problem or arguments.local_only:
        row = {"layout": layout.name, "ranks": layout.ranks, "problems": [local.problem] if local.problem else [], "local_s": local.seconds}
        return row | {"loss": local.losses[-1] if local.losses else None}
    canonical = runs.nccl(folder, layout.ranks, "canonical", arguments.limit)
    fast = runs.nccl(folder, layout.ranks, "fast", arguments.limit) if not canonical.problem else None
    problems = judge(layout, local, canonical, fast) if fast else [canonical.problem]
    if not problems:
        shutil.rmtree(folder)
    return {"layout": layout.name, "ranks": layout.ranks, "loss": local.losses[-1], "steps": len(local.losses), "problems": problems,
            "same_bits": canonical.losses == local.losses and canonical.digest == local.digest,
            "fast_difference": relative(fast.losses, local.losses) if fast else None, "fast_same": bool(fast) and fast.losses == local.losses,
            "local_s": local.seconds, "canonical_s": canonical.seconds, "fast_s": fast.seconds if fast else None}


def layout_line(row):
    def seconds(name):
        return "" if row.get(name) is None else f"{row[name]:.0f}"

    if "same_bits" not in row:
        verdict = "| | | "
    else:
        near = "" if row["fast_difference"] is None else "same losses" if row["fast_same"] else f"{row['fast_difference']:.1e}"
        verdict = f"| {'same bits' if row['same_bits'] else 'DIFFERS'} | {near} | {seconds('canonical_s')}, {seconds('fast_s')} "
    loss = f"{row['loss']:.4f}" if isinstance(row.get("loss"), float) else ""
    return f"| {row['layout']} | {row['ranks']} | {loss} {verdict}| {'ok' if not row['problems'] else 'FAILS'} |"


def share_of(cases, share, only):
    which, of = map(int, share.split("/"))
    return [case for index, case in enumerate(cases) if index % of == which - 1 and re.search(only, case.name)]


class Test:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.start = time.monotonic()
        self.lines, self.rows = [], []

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)
        if self.arguments.out:
            self.arguments.out.write_text("\n".join(self.lines) + "\n")
            self.arguments.out.with_suffix(".json").write_text(json.dumps(self.rows, indent=1) + "\n")

    def late(self):
        return time.monotonic() - self.start > self.arguments.budget

    def layouts(self, runs, jobs):
        self.say("| layout | ranks | loss | canonical sums | NCCL's sums | seconds | |")
        self.say("|---|---|---|---|---|---|---|")

        def one(layout):
            if self.late():
                return {"layout": layout.name, "ranks": layout.ranks, "problems": ["not run: the time was over"]}
            return run_layout(runs, self.arguments, layout)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for row in pool.map(one, share_of(layouts(), self.arguments.share, self.arguments.only)):
                self.rows.append(row)
                self.say(layout_line(row))

    def faults(self, runs):
        self.say("\n| fault | seconds | |")
        self.say("|---|---|---|")
        for fault in share_of(FAULTS, "1/1", self.arguments.only):
            begin = time.monotonic()
            problem = "not run: the time was over" if self.late() else getattr(nccl_faults, fault.what)(runs, fault.seconds)
            self.rows.append({"fault": fault.name, "problems": [problem] if problem else [], "seconds": time.monotonic() - begin})
            self.say(f"| {fault.name} | {time.monotonic() - begin:.0f} | {'FAILS' if problem else 'ok'} |")

    def run(self):
        arguments = self.arguments
        runs = Runs(arguments.program, self.folder, "cpu" if arguments.local_only else "cuda")
        self.say("# Ranks over NCCL on one GPU\n")
        self.say(f"- machine: {machine()}\n- date: {datetime.date.today()}\n- command: `./dev gpu-test --nccl`, share {arguments.share}")
        if not arguments.no_layouts:
            self.say("")
            self.layouts(runs, arguments.jobs)
        if arguments.faults:
            self.faults(runs)
        problems = [(row.get("layout") or row.get("fault"), problem) for row in self.rows for problem in row["problems"]]
        self.say(f"\n{len(self.rows) - len({name for name, _ in problems})} of {len(self.rows)} pass; {time.monotonic() - self.start:.0f} s.")
        for name, problem in problems:
            self.say(f"\n{name}: {problem}")
        return 1 if problems else 0


def machine():
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        return (subprocess.run(query, capture_output=True, text=True).stdout.splitlines() or ["no GPU"])[0]
    except OSError:
        return "no GPU"


def main():
    arguments = parse()
    arguments.program = arguments.program.resolve()
    if not arguments.program.is_file():
        sys.exit(f"nccl-test: {arguments.program} is not there; build it with ./dev build cuda")
    with tempfile.TemporaryDirectory(prefix="plimsoll-nccl-") as folder:
        sys.exit(Test(arguments, folder).run())


main()
