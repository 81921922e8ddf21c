"""What ranks over NCCL are put through, one function for each fault of nccl_cases.FAULTS. Each returns an empty text, or what went wrong."""

import os
import pathlib
import signal
import socket
import struct
import time

from nccl_cases import SILENCE
from nccl_runs import end, free_port, wait

LOST = 4
ENDLESS = {"steps": 1000000, "eval.every": 0, "limits.silence": SILENCE, "limits.wait": 20.0}


class Fault:
    """A run of two data ranks to which something happens."""

    def __init__(self, runs, name, seconds, settings=None):
        self.runs, self.seconds = runs, seconds
        self.folder = runs.prepare(f"fault {name}", {"data": 2}, {**ENDLESS, **(settings or {})})
        self.port = free_port()
        self.began = time.monotonic()

    def start(self, environments=None, programs=None):
        self.processes = self.runs.start_ranks(self.folder, 2, [], self.port, environments, programs)

    def steps(self):
        metrics = self.folder / "out" / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.is_file() else 0

    def trains(self, limit=90):
        end_of_wait = time.monotonic() + limit
        while self.steps() < 4:
            if time.monotonic() > end_of_wait or any(one.poll() is not None for one in self.processes):
                return False
            time.sleep(0.05)
        return True

    def send(self, rank, number):
        self.processes[rank].send_signal(number)
        self.began = time.monotonic()

    def ends(self, codes, words, grace=0.0):
        """Whether the ranks end in time with these codes, and the words stand in what one of them says. `grace` is added before both run."""
        problems, said = [], ""
        for rank, code in codes.items():
            ended = wait(self.processes[rank], self.folder, f"rank-{rank}", self.began, self.seconds + grace)
            said += ended.err
            if ended.late:
                problems.append(f"rank {rank} did not end within {self.seconds + grace:.0f} s")
            elif ended.code != code:
                problems.append(f"rank {rank} ended with {ended.code}, not {code}")
        if words not in said:
            problems.append(f"'{words}' was not said, but: {said.strip()[-500:]}")
        self.close()
        return "; ".join(problems)

    def close(self):
        for process in self.processes:
            if process is not None and process.poll() is None:
                end(process)


START = 20.0  # seconds until a process has read its settings and found the GPU, on a busy machine


def no_gpu(runs, seconds):
    fault = Fault(runs, "no gpu", seconds)
    fault.start({1: {"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "0"}})
    return fault.ends({0: LOST, 1: 2}, "rank 1 failed: LOCAL_RANK is 1", START)


def no_number(runs, seconds):
    fault = Fault(runs, "no number", seconds)
    fault.start({1: {"LOCAL_RANK": "7"}})
    return fault.ends({0: LOST, 1: 2}, "rank 1 failed before it met the others: LOCAL_RANK is", START)


def early(runs, seconds):
    fault = Fault(runs, "early", seconds)
    (fault.folder / "bad").mkdir()
    bad = fault.folder / "bad" / "plimsoll"
    bad.write_text(f'#!/bin/sh\nexec "{runs.program}" train nowhere.json\n')
    bad.chmod(0o755)
    fault.start(programs={1: str(bad)})
    return fault.ends({0: LOST, 1: 2}, "rank 1 failed before it met the others", START)


def absent(runs, seconds):
    fault = Fault(runs, "absent", seconds, {"limits.wait": 4.0})
    fault.start({1: {"ABSENT": "1"}})
    return fault.ends({0: LOST}, "rank 1 of 2 did not come", START)


def killed_rank(runs, seconds, rank, words):
    fault = Fault(runs, f"killed {rank}", seconds)
    fault.start()
    if not fault.trains():
        fault.close()
        return "it did not begin to train: " + (fault.folder / "rank-0.err").read_text()[-400:]
    fault.send(rank, signal.SIGKILL)
    return fault.ends({1 - rank: LOST}, words)


def killed(runs, seconds):
    return killed_rank(runs, seconds, 1, "rank 1 is gone")


def first_killed(runs, seconds):
    return killed_rank(runs, seconds, 0, "rank 0 is gone")


def stopped(runs, seconds):
    fault = Fault(runs, "stopped", seconds)
    fault.start()
    if not fault.trains():
        fault.close()
        return "it did not begin to train"
    fault.send(1, signal.SIGSTOP)
    return fault.ends({0: LOST}, f"rank 1 gave no sign of life for {SILENCE:g} s")


def other_build(runs, seconds):
    program = pathlib.Path(runs.program).read_bytes()
    head = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"  # sizes of name and digest, kind, name
    at = program.find(head)
    if at < 0:
        return "the linker left no digest of the program"
    at += len(head)
    fault = Fault(runs, "other build", seconds)
    # Beside the program, whose modules are looked for there.
    other = pathlib.Path(runs.program).with_name(f"plimsoll-other-{os.getpid()}")
    try:
        other.write_bytes(program[:at] + bytes([program[at] ^ 1]) + program[at + 1:])
        other.chmod(0o755)
        fault.start(programs={1: str(other)})
        return fault.ends({0: LOST, 1: LOST}, "rank 1 is of another build", START)
    finally:
        other.unlink(missing_ok=True)


def other_token(runs, seconds):
    fault = Fault(runs, "other token", seconds, {"limits.wait": 4.0})
    fault.start({1: {"PLIMSOLL_TOKEN": "another"}})
    return fault.ends({0: LOST, 1: 2}, "was refused: this rank belongs to another job", START)


def stranger(runs, seconds):
    fault = Fault(runs, "stranger", seconds, {"steps": 40})
    fault.start()
    noise = [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<I", 0xffffffff), struct.pack("<I", 100) + b"half a frame", b""]
    told, held, limit = 0, [], time.monotonic() + 60
    while told < len(noise) and time.monotonic() < limit:
        try:
            one = socket.create_connection(("127.0.0.1", fault.port), 1)
            one.sendall(noise[told])
            held.append(one)
            told += 1
        except OSError:
            time.sleep(0.05)
    ended = [wait(process, fault.folder, f"rank-{rank}", fault.began, 120) for rank, process in enumerate(fault.processes)]
    problems = [f"rank {rank} ended with {one.code}: {one.err[-300:]}" for rank, one in enumerate(ended) if one.code != 0]
    if told < len(noise):
        problems.append("nobody listened")
    if "was refused" not in ended[0].err:
        problems.append("no refusal was logged")
    return "; ".join(problems)
