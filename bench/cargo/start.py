"""From the start of the process until the first training step begins: GPT-2 124M from a safetensors file of its folder.

Ours is `plimsoll train`; when its first step began is the time its first line of metrics was there less the seconds that
the line says. The peer imports torch and transformers, loads the same folder and makes its optimizer.
"""

import array
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

from peers import contest

DOC = "GPT-2 124M from safetensors until the first training step begins, file in memory, against transformers + PyTorch"
TARGET = 5.0
MAKE_MODEL = """
import sys, torch, transformers
torch.manual_seed(1)
transformers.GPT2LMHeadModel(transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).save_pretrained(sys.argv[1])
"""


def make_inputs(arguments, folder):
    subprocess.run([arguments.python, "-c", MAKE_MODEL, folder / "model"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    tokens = array.array("H", [random.Random(1).randrange(50257) for _ in range(100_000)])
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    settings = {"model": {"path": str(folder / "model")}, "data": {"train": str(folder / "tokens.bin")},
                "batch": {"global": 4, "micro": 4, "sequence": 64}, "steps": 1, "threads": arguments.threads, "eval": {"every": 0},
                "out": str(folder / "out")}
    (folder / "run.json").write_text(json.dumps(settings))


def our_seconds(arguments, folder):
    metrics = folder / "out" / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    program = contest.ROOT / arguments.build / "src" / "cli" / "plimsoll"
    start = time.time()
    process = subprocess.Popen([program, "train", folder / "run.json", "--fresh"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while not (metrics.exists() and metrics.read_text().endswith("\n")):
        if process.poll() not in (None, 0):
            raise SystemExit(process.stderr.read().decode())
        time.sleep(0.001)
    end = time.time()
    process.kill()
    process.wait()
    return end - start - json.loads(metrics.read_text().splitlines()[0])["seconds"]


def peer_seconds(arguments, folder):
    script = contest.peer_script(arguments, "torch_start.py")
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    start = time.time()
    done = subprocess.run([*script, folder / "model", folder / "tokens.bin"], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout) - start


def run(arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            make_inputs(arguments, folder)
        except (OSError, subprocess.CalledProcessError) as failure:
            return f"not measured: the peer's interpreter cannot make the model ({failure})"
        ours, peers = [], []
        for _ in range(arguments.repeats):
            ours.append(our_seconds(arguments, folder))
            peers.append(peer_seconds(arguments, folder))
    rows = [[label, f"{min(seconds):.3f}", f"{statistics.median(seconds):.3f}"]
            for label, seconds in (("Plimsoll", ours), ("transformers + PyTorch", peers))]
    table = contest.markdown_table(["", "best s", "median s"], rows)
    return f"{table}\n\n{min(peers) / min(ours):.1f}x faster; to reach: {TARGET}x"
