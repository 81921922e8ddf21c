"""The driver's side of protocol.py: starts contenders, interleaves their steps and writes down who was faster.

A contender is a process that speaks the protocol: one of our programs or a peer. Only one computes at a time, because
all others wait for a line on standard input; each round asks every one of them for one step, in turning order, so that
what disturbs the machine for a while disturbs all of them. Rounds also give pairs of neighbours in time, whose ratios
show how sure the result is.
"""

import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS_OF_INTEREST = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")


class Lost(Exception):
    """A contender ended, or said something that is not of the protocol."""


@dataclass
class Contender:
    label: str
    command: list
    environment: dict = field(default_factory=dict)
    seconds: list = field(default_factory=list)  # one per round
    summary: dict = field(default_factory=dict)

    def start(self):
        """Returns when it is warm, so that nobody's warm-up overlaps anybody's."""
        self.errors = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen([*map(str, self.command), "--interactive"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=self.errors, text=True, cwd=ROOT, env={**os.environ, **self.environment})
        except OSError as failure:
            raise Lost(f"{self.label}: {failure.filename} cannot be run ({failure.strerror}); bench/README.md says how peers are installed")
        if not json.loads(self.answer()).get("ready"):
            raise Lost(f"{self.label}: the first line does not say that it is ready")

    def answer(self):
        line = self.process.stdout.readline()
        if line:
            return line
        self.errors.seek(0)
        last = (self.errors.read().strip().splitlines() or ["it wrote nothing to standard error"])[-1]
        raise Lost(f"{self.label}: ended with exit code {self.process.wait()}: {last}")

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.answer()

    def step(self):
        self.seconds.append(float(self.tell("step")))

    def finish(self):
        self.summary = json.loads(self.tell("quit"))
        self.process.wait()

    def stop(self):
        self.process.kill()
        self.process.wait()

    best = property(lambda self: min(self.seconds))
    median = property(lambda self: statistics.median(self.seconds))
    spread = property(lambda self: max(self.seconds) / min(self.seconds) - 1)


@dataclass
class Contest:
    """What came of it: ours first, then the peers that were there, and why others were not."""

    ours: Contender
    peers: list
    absent: list
    floor: Contender | None = None  # what nobody can be faster than on this machine

    @property
    def fastest_peer(self):
        return min(self.peers, key=lambda peer: peer.best, default=None)

    def ratio(self):
        """How many times as fast as the fastest peer, best against best, and the range over the rounds."""
        rounds = [theirs / own for own, theirs in zip(self.ours.seconds, self.fastest_peer.seconds)]
        return self.fastest_peer.best / self.ours.best, min(rounds), max(rounds)

    def most(self):
        """The ratio of one that does nothing but what the floor does."""
        return self.fastest_peer.best / self.floor.best


def hold(ours, peers, repeats, floor=None):
    """Starts everybody, asks `repeats` rounds of steps, and ends them. A peer that is not installed is left out."""
    own = [ours, floor] if floor else [ours]
    started, absent = [], []
    try:
        for contender in own:
            contender.start()
            started.append(contender)
        for peer in peers:
            try:
                peer.start()
                started.append(peer)
            except (Lost, json.JSONDecodeError) as failure:
                absent.append(str(failure) if isinstance(failure, Lost) else f"{peer.label}: {failure}")
                report(f"without {absent[-1]}\n")
        for turn in range(repeats):
            for contender in started if turn % 2 == 0 else reversed(started):
                contender.step()
        for contender in started:
            contender.finish()
    finally:
        for contender in (*own, *peers):
            if hasattr(contender, "process") and contender.process.poll() is None:
                contender.stop()
    return Contest(ours, started[len(own):], absent, floor)


def report(line=""):
    print(line, flush=True)


# ---- arguments that all drivers share


def add_arguments(parser):
    parser.add_argument("--python", help="interpreter of the peers (default: $PLIMSOLL_ORACLE, then oracle/bin/python)")
    parser.add_argument("--build", default="build/release", help="where our programs were built (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="timed rounds (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=2, help="steps before timing starts (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="2 rounds, the first peer only, nothing written")
    parser.add_argument("--results", type=Path, help="folder of the results file (default: bench/results, none with --quick)")


def parse(parser):
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.repeats = 2
    elif arguments.results is None:
        arguments.results = ROOT / "bench" / "results"
    arguments.python = arguments.python or os.environ.get("PLIMSOLL_ORACLE") or str(ROOT / "oracle" / "bin" / "python")
    return arguments


def serve_options(arguments):
    return ["--threads", arguments.threads, "--warmup", arguments.warmup]


def our_program(arguments, name):
    program = ROOT / arguments.build / "bench" / f"bench_{name}"
    if not program.exists():
        raise SystemExit(f"{program} does not exist; build it with `./dev build`, or say with --build where it is")
    return program


def peer_script(arguments, name):
    return [arguments.python, ROOT / "bench" / "peers" / name]


# ---- text


def timing_rows(contest, rate):
    """Rows of TIMING_HEADER; rate(contender) is the text of its last column."""
    rows = []
    for contender in (contest.ours, *contest.peers, *([contest.floor] if contest.floor else [])):
        times = [f"{contender.best:.4f}", f"{contender.median:.4f}", f"{100 * contender.spread:.0f}%"]
        rows.append([contender.label, *times, rate(contender)])
    return rows


TIMING_HEADER = ["", "best s", "median s", "spread"]


def ratio_text(contest):
    if not contest.peers:
        return "no peer was there"
    ratio, low, high = contest.ratio()
    most = f"; {contest.floor.label} take {contest.floor.best:.2f} s, {contest.most():.2f}x" if contest.floor else ""
    return f"{ratio:.2f}x of {contest.fastest_peer.label} ({low:.2f} to {high:.2f} over the rounds){most}"


def markdown_table(header, rows):
    widths = [max(len(str(row[column])) for row in [header, *rows]) for column in range(len(header))]
    line = lambda cells: "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(cells, widths)) + " |"
    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def machine():
    facts = dict(line.split(":", 1) for line in output_of("lscpu").splitlines() if ":" in line)
    flags = facts.get("Flags", "").split()
    found = " ".join(flag for flag in FLAGS_OF_INTEREST if flag in flags)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{facts['Model name'].strip()}, {os.cpu_count()} CPUs, {memory:.0f} GiB, {found}"


def commit():
    if "PLIMSOLL_COMMIT" in os.environ:  # measured from a copy without its history
        return os.environ["PLIMSOLL_COMMIT"]
    changed = output_of("git", "status", "--porcelain", "--", "src", "bench", "cmake", "CMakeLists.txt")
    return output_of("git", "rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def heading(title):
    """Taken before the contest: the load must be that of others."""
    load = os.getloadavg()[0]
    busy = " (busy: wall times below are those of a shared machine)" if load > 0.5 else ""
    return "\n".join([f"# {title}", "", f"- machine: {machine()}", f"- load before the run: {load:.2f}{busy}", f"- commit: {commit()}",
                      f"- date: {datetime.date.today().isoformat()}", f"- command: `{shlex.join(['python3', *sys.argv])}`", ""])


def write(arguments, name, text):
    if arguments.results is None:
        return
    path = arguments.results / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
    report(f"\nwritten to {path}")
