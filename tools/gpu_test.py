#!/usr/bin/env python3
"""The tests that need a GPU, in one table.

    ./dev gpu-test                                   # all of them; the table goes to bench/results/gpu_test.md
    ./dev gpu-test --sanitize memcheck,racecheck     # and the operators under compute-sanitizer: minutes
    tools/gpu_test.py --programs FOLDER              # programs that were built elsewhere, all in one folder

Operators are compared with the f64 reference, golden models with the reference package's files, layouts of ranks that share the GPU and
tiers with one rank on the device. A program's tests, or an operator's cases, are dealt out over several processes: what takes time is the
reference, and under compute-sanitizer the kernels. racecheck runs our own kernels: those of cuBLASLt fail under it, watched or not.
"""

import argparse
import concurrent.futures
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field

PROCESSES = 16  # at a time
ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclass
class Part:
    name: str
    program: str  # under the build folder
    shards: int = 1
    filter: str = "*"
    environment: dict = field(default_factory=dict)
    prefix: list = field(default_factory=list)
    share_cases: bool = False  # every process runs all tests, each on its share of the cases


PARTS = [
    Part("operators against the f64 reference", "tests/cuda/test_cuda_operators", 16, "Operators/*", share_cases=True),
    Part("rows and sums at the widths of models", "tests/cuda/test_cuda_operators", 8, "-Operators/*"),
    Part("exchange of ranks that share a GPU", "tests/cuda/test_cuda_exchange"),
    Part("layouts and tiers against one rank", "tests/cuda/test_cuda_layouts", 8),
    Part("golden models", "tests/golden/test_golden", 4, environment={"PLIMSOLL_TEST_DEVICE": "cuda"}),
    Part("golden loss curves", "tests/golden/test_golden_curve", 1, environment={"PLIMSOLL_TEST_DEVICE": "cuda"}),
]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda")
    parser.add_argument("--programs", type=pathlib.Path, help="a folder with all programs, instead of --build")
    parser.add_argument("--only", default="", help="parts whose name contains this")
    parser.add_argument("--sanitize", default="", help="tools of compute-sanitizer, with commas")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for each process")
    parser.add_argument("--out", type=pathlib.Path, help="write the table here")
    return parser.parse_args()


def path_of(arguments, part):
    return (arguments.programs / pathlib.Path(part.program).name if arguments.programs else arguments.build / part.program).resolve()


def run_shard(arguments, part, shard):
    environment = dict(os.environ, OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive", **part.environment)
    if part.share_cases:
        environment["PLIMSOLL_TEST_SHARE"] = f"{shard}/{part.shards}"
    else:
        environment.update(GTEST_TOTAL_SHARDS=str(part.shards), GTEST_SHARD_INDEX=str(shard))
    command = [*part.prefix, str(path_of(arguments, part)), "--gtest_brief=1", f"--gtest_filter={part.filter}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, timeout=arguments.timeout, cwd=ROOT)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace") + f"\nno end after {arguments.timeout} s\n"


def row(arguments, part):
    if not path_of(arguments, part).is_file():
        return f"| {part.name} | not built | | |", [f"{part.name}: {path_of(arguments, part)} is not there"]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(min(part.shards, PROCESSES)) as pool:
        shards = list(pool.map(lambda shard: run_shard(arguments, part, shard), range(part.shards)))
    counts = [sum(map(int, re.findall(r"\[  PASSED  \] (\d+) test", text))) for _, text in shards]
    passed = min(counts) if part.share_cases else sum(counts)
    failed = sorted({found for _, text in shards for found in re.findall(r"\[  FAILED  \] ([^\s,]+/?[^\s,]*)", text) if not found.isdigit()})
    problems = [text for code, text in shards if code != 0]
    errors = [int(found) for _, text in shards for found in re.findall(r"ERROR SUMMARY: (\d+) error", text)]
    hazards = [int(found) for _, text in shards for found in re.findall(r"RACECHECK SUMMARY: (\d+) hazard", text)]
    found = f"; {sum(errors + hazards)} findings in {len(errors + hazards)} of {part.shards} processes" if part.prefix else ""
    verdict = "all pass" if not problems else f"{len(failed)} fail: {', '.join(failed)}" if failed else f"{len(problems)} processes ended badly"
    return f"| {part.name} | {passed} | {verdict}{found} | {time.monotonic() - start:.0f} s |", problems


def sanitized(arguments):
    for tool in filter(None, arguments.sanitize.split(",")):
        if shutil.which("compute-sanitizer") is None:
            sys.exit("gpu-test: compute-sanitizer is not installed; it comes with the CUDA toolkit")
        prefix = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "5"]
        own = {"PLIMSOLL_TEST_KERNELS": "own"} if tool == "racecheck" else {}
        # Many shares: with all of attention's cases in a few processes racecheck takes too long.
        yield Part(f"operators under {tool}" + (", our own kernels" if own else ""), PARTS[0].program, 6 * PROCESSES, "Operators/OnDevice.Kernels*", own, prefix,
                   share_cases=True)
        yield Part(f"rows and sums under {tool}", PARTS[1].program, 8, PARTS[1].filter, {}, prefix)
        yield Part(f"where numbers first were not finite, under {tool}", PARTS[3].program, 1, "NotFinite.*", {}, prefix)


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except OSError:
        return ""


def main():
    arguments = parse()
    machine = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    if not machine:
        sys.exit("gpu-test: no GPU here (nvidia-smi has none)")
    lines = ["# Tests on a GPU", "", f"- machine: {machine[0]}", f"- commit: {output_of('git', 'rev-parse', '--short', 'HEAD') or 'the one that adds this file'}",
             f"- date: {datetime.date.today()}", "- command: `./dev gpu-test`" + (f" with `--sanitize {arguments.sanitize}`" if arguments.sanitize else ""), "",
             "| tests | passed | | took |", "|---|---|---|---|"]
    print("\n".join(lines))
    problems = []
    for part in [*PARTS, *sanitized(arguments)]:
        if arguments.only not in part.name:
            continue
        line, found = row(arguments, part)
        lines.append(line)
        problems += found
        print(line, flush=True)
    for problem in problems:
        print(problem, file=sys.stderr)
    if arguments.out:
        arguments.out.write_text("\n".join(lines) + "\n")
    sys.exit(1 if problems else 0)


main()
