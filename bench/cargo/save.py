"""How long training stands still for a checkpoint of GPT-2 124M with optimizer state, beside torch.save of the same tensors.

Ours is `plimsoll train` with a checkpoint after every step; it says itself how long it waited for each save that ran beside
training (the last one of a run, which is waited for, is left out). The whole save, with sums, sync and read-back, is timed
by bench_checkpoint.
"""

import json
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from peers import contest
from peers.contest import ROOT, Contender

DOC = "time training stands still for a checkpoint, against torch.save"
TARGET = 10.0
SUMS_TARGET = 2.0  # % of the save
WAITED = re.compile(r"saved \S+ \(([0-9.]+) s, training waited ([0-9.]+) s\)")


def stalls(arguments, folder):
    """Seconds waited and seconds of the whole save, of each save beside training."""
    (folder / "text.txt").write_text("What is saved is read where it lies. " * 2000)
    run = {"model": "gpt2", "data": {"train": str(folder / "text.txt")}, "batch": {"global": 4, "micro": 4, "sequence": 256},
           "steps": 1 + arguments.repeats, "threads": arguments.threads, "checkpoint": {"every": 1}, "out": str(folder / "out")}
    (folder / "run.json").write_text(json.dumps(run))
    program = ROOT / arguments.build / "src" / "cli" / "plimsoll"
    text = subprocess.run([program, "train", folder / "run.json"], capture_output=True, text=True, check=True).stdout
    found = [(float(waited), float(whole)) for whole, waited in WAITED.findall(text)][:-1]
    return [waited for waited, _ in found], [whole for _, whole in found]


def run(arguments):
    with tempfile.TemporaryDirectory(dir=ROOT / arguments.build) as name:
        folder = Path(name)
        waited, whole = stalls(arguments, folder)
        options = ["--threads", arguments.threads, "--warmup", 1, "--folder", folder / "files"]
        (folder / "files").mkdir()
        peer = Contender("torch.save", [*contest.peer_script(arguments, "torch_save.py"), "--threads", arguments.threads, "--warmup", 1, "--folder", folder])
        program = contest.our_program(arguments, "checkpoint")
        sums = Contender("sums alone", [program, *options[:-1], folder / "sums", "--kind", "sums"])
        result = contest.hold(Contender("whole save", [program, *options, "--kind", "save"]), [peer, sums], min(3, arguments.repeats))
    save = result.ours
    peers = {one.label: one for one in result.peers}
    rows = [["training stands still (median)", f"{statistics.median(waited):.4f} s"],
            ["training stands still (longest)", f"{max(waited):.4f} s"],
            ["a save beside training (median)", f"{statistics.median(whole):.2f} s"],
            ["a save alone: written, summed, synced, read back", f"{save.best:.2f} s best, {save.median:.2f} s median"]]
    figures = []
    if "torch.save" in peers:
        torch = peers["torch.save"]
        rows.append(["torch.save (not synced, not summed)", f"{torch.best:.2f} s best, {torch.median:.2f} s median"])
        ratio = torch.median / max(statistics.median(waited), 1e-4)
        figures.append(["training stands still, against torch.save", f"{TARGET:.0f}x less", f"{ratio:.0f}x less"])
    if "sums alone" in peers:
        alone = peers["sums alone"]
        share = 100 * alone.summary["step_cpu_seconds"]["best"] / save.median
        figures.append(["one pass of sums on one thread, of a save's median", f"{SUMS_TARGET:.0f}%",
                        f"{share:.1f}% (made beside the writing)"])
    text = contest.markdown_table(["what", "time"], rows)
    text += "".join(f"\n\nNot there: {reason}" for reason in result.absent)
    return text + "\n\n" + contest.markdown_table(["figure", "wanted", "found"], figures)
