"""How a peer talks to the benchmark driver, so that our steps and the peer's can be interleaved in one run.

With --interactive the peer prints one line {"ready": true, ...} when it is built and warmed up, then answers each line
`step` with the seconds of one step, and `quit` or the end of input with the summary line. Without it, it runs --steps
steps and prints only the summary. All lines are JSON but the seconds, which are a bare number. Nothing else goes to
standard output, and between steps the peer only waits: it costs the other side no CPU.
"""

import json
import os
import statistics
import sys
import time


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def add_arguments(parser):
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="timed steps (not in interactive mode)")
    parser.add_argument("--warmup", type=int, default=1, help="steps before timing starts")
    parser.add_argument("--interactive", action="store_true", help="one step per line read from standard input")


def limit_threads(count):
    """Before torch is imported: its OpenMP pool and oneDNN read these once."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)


def peak_rss_bytes():
    """VmHWM and not ru_maxrss, which would start from the size of the process that launched us."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def timed(step):
    """Wall and CPU seconds (all threads); on a quiet machine CPU is about threads x wall, on a busy one wall tells nothing."""
    start, start_cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - start, time.process_time() - start_cpu


def best_and_median(values):
    return {"best": min(values), "median": statistics.median(values)}


def serve(arguments, step, describe):
    """Warms up, runs the steps the way the arguments ask, prints the summary. describe(best seconds): extra fields."""
    warmup = [timed(step)[0] for _ in range(arguments.warmup)]
    taken = []
    if arguments.interactive:
        say(json.dumps({"ready": True, "pid": os.getpid(), "warmup_seconds": warmup}))
        for line in sys.stdin:
            if line.strip() == "quit":
                break
            if line.strip() != "step":
                raise SystemExit(f'expected "step" or "quit" on standard input, found "{line.strip()}"')
            taken.append(timed(step))
            say(f"{taken[-1][0]:.9f}")
    else:
        taken = [timed(step) for _ in range(arguments.steps)]
    summary = {"steps": len(taken), "threads": arguments.threads, "warmup_seconds": warmup, "peak_rss_bytes": peak_rss_bytes()}
    if taken:
        wall, cpu = zip(*taken)
        summary = {**describe(min(wall)), "step_seconds": best_and_median(wall), "step_cpu_seconds": best_and_median(cpu)} | summary
    say(json.dumps(summary))
