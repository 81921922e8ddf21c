"""Starts runs of several ranks for tools/nccl_test.py: as threads of one process, or as processes that meet over NCCL on one GPU.

NCCL refuses two ranks on one GPU of one host. NCCL_HOSTID gives each rank a host of its own, so that they talk over the loopback interface.
"""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field

from nccl_cases import MODEL

STEPS = 4


@dataclass
class Ended:
    code: int
    out: str
    err: str
    seconds: float  # from the start; or from the fault, where there was one
    late: bool = False


@dataclass
class Result:
    losses: list = field(default_factory=list)
    digest: str = ""  # of the last checkpoint's files
    seconds: float = 0.0
    problem: str = ""  # empty: all ranks ended with 0


class Runs:
    def __init__(self, program, folder, device="cuda", environment=None):
        self.program = str(program)
        self.folder = pathlib.Path(folder)
        self.device = device
        self.environment = dict(os.environ, OMP_NUM_THREADS="2", OMP_WAIT_POLICY="passive", **(environment or {}))

    def prepare(self, name, strategy, settings):
        folder = self.folder / name.replace(" ", "_").replace(",", "").replace(":", "").replace("/", "")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = "".join(f"the quick brown fox jumps over the lazy dog number {line}\n" for line in range(400))
        (folder / "train.txt").write_text(text)
        (folder / "valid.txt").write_text(text[:2000])
        run = {"model": dict(MODEL), "data": {"train": "train.txt", "valid": "valid.txt"}, "batch": {"global": 8, "micro": 2, "sequence": 16},
               "optimizer": {"type": "adamw", "lr": 1e-3, "clip": 1.0}, "strategy": strategy, "device": self.device, "steps": STEPS, "threads": 2,
               "eval": {"every": 2, "batches": 1}, "checkpoint": {"every": 0}, "out": "out"}
        for key, value in settings.items():
            where = run
            *path, last = key.split(".")
            for part in path:
                where = where.setdefault(part, {})
            where[last] = value
        (folder / "run.json").write_text(json.dumps(run, indent=1))
        return folder

    def start(self, folder, arguments, environment, name="rank", program=None):
        out, err = open(folder / f"{name}.out", "wb"), open(folder / f"{name}.err", "wb")
        # A session of its own, so that one signal ends a rank with all that it started.
        return subprocess.Popen([program or self.program, "train", "run.json", *arguments], cwd=folder, stdout=out, stderr=err,
                                env=dict(self.environment, **environment), start_new_session=True)

    def rank_environment(self, rank, ranks, port):
        return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "NCCL_HOSTID": f"host-{port}-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "PLIMSOLL_TOKEN": f"job-{port}"}

    def start_ranks(self, folder, ranks, arguments, port, environments=None, programs=None):
        started = []
        for rank in range(ranks):
            environment = dict(self.rank_environment(rank, ranks, port), **((environments or {}).get(rank) or {}))
            if environment.pop("ABSENT", None):
                started.append(None)
                continue
            started.append(self.start(folder, ["--set", "transport=nccl", *arguments], environment, f"rank-{rank}", (programs or {}).get(rank)))
        return started

    def local(self, folder, arguments=(), limit=120):
        begin = time.monotonic()
        process = self.start(folder, ["--set", "transport=local", "--set", "out=local", *arguments], {}, "local")
        return self.result(folder, "local", [wait(process, folder, "local", begin, limit)])

    def nccl(self, folder, ranks, sums, limit):
        begin = time.monotonic()
        out = f"nccl-{sums}"
        processes = self.start_ranks(folder, ranks, ["--set", f"communication.sums={sums}", "--set", f"out={out}"], free_port())
        return self.result(folder, out, [wait(process, folder, f"rank-{rank}", begin, limit) for rank, process in enumerate(processes)])

    def result(self, folder, out, ended):
        result = Result(seconds=max(one.seconds for one in ended))
        for rank, one in enumerate(ended):
            if one.code != 0 and not result.problem:
                words = "no end within the limit" if one.late else f"exit code {one.code}"
                result.problem = f"{out}: rank {rank}: {words}: {one.err.strip()[-400:]}"
        metrics = folder / out / "metrics.jsonl"
        if metrics.is_file():
            result.losses = [line["loss"] for line in map(json.loads, metrics.read_text().splitlines()) if "loss" in line]
        saved = sorted((folder / out / "checkpoints").glob("step-*"))
        if saved:
            digest = hashlib.sha256()
            for file in sorted(saved[-1].glob("data-*.bin")):
                digest.update(file.read_bytes())
            result.digest = digest.hexdigest()[:16]
        return result


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait(process, folder, name, begin, limit):
    late = False
    try:
        process.wait(max(0.1, begin + limit - time.monotonic()))
    except subprocess.TimeoutExpired:
        late = True
        end(process)
    read = lambda kind: (folder / f"{name}.{kind}").read_text(errors="replace")
    return Ended(process.returncode, read("out"), read("err"), time.monotonic() - begin, late)
