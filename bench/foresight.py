#!/usr/bin/env python3
"""Predicted against measured step times on this machine's processor, or on its GPU.

Calibrates, then for each configuration simulates a step (`plimsoll simulate --cluster`) and trains a few dozen (`plimsoll train`), and
compares the two. The table goes to bench/results/foresight.md, that of a GPU to foresight_gpu.md.

Who shares the machine slows it down by a fifth for seconds at a time, and a forecast is of a step that nobody disturbs. So all
configurations are run in rounds, one after the other, and what counts of each is the round with the lowest median; the repeat spread is how
much higher the highest is. A virtual machine's cores share a cache or not as its host moves them, which changes steps by a third: the round
trip between cores is looked at before and after each run (`plimsoll calibrate --cores`), runs whose cores were apart are set aside, and what
then has fewer than half of its rounds is run again while there is time.

    ./dev bench foresight                       # all configurations: four minutes on two quiet cores, eight where they move
    ./dev bench foresight --only 3 --calibration FILE   # the first three, with measurements made before
    ./dev bench foresight --busy                # on a machine that others use: processor time of ranks with one thread
    ./dev bench foresight --device cuda         # one GPU; --calibration may also name a preset (hgx-h200)
"""

import argparse
import itertools
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARIES = {"cpu": ROOT / "build/release/src/cli/plimsoll", "cuda": ROOT / "build/cuda/src/cli/plimsoll"}
UNCOUNTED = 3
APART = 2.5  # times the shortest round trip between cores
SECONDS = 440  # no further run is begun after so long


def gpt(layers, width, heads, vocab=512, context=256):
    return {"family": "gpt2", "layers": layers, "width": width, "heads": heads, "context": context, "vocab": vocab}


def llama(layers, width, heads, vocab=512, context=256):
    return {"family": "llama", "layers": layers, "width": width, "heads": heads, "context": context, "vocab": vocab}


def case(name, model, batch, precision="f32", **strategy):
    return {"name": name, "model": model, "batch": dict(zip(("global", "micro", "sequence"), batch)), "precision": precision,
            "strategy": strategy}


CASES = [
    case("gpt 4 x 128", gpt(4, 128, 4), (8, 8, 64)),
    case("gpt 4 x 256", gpt(4, 256, 8), (8, 4, 128)),
    case("gpt 4 x 256, bf16", gpt(4, 256, 8), (8, 4, 128), "bf16"),
    case("gpt 6 x 384", gpt(6, 384, 6), (4, 4, 128)),
    case("gpt 6 x 384, 4 micro-batches", gpt(6, 384, 6), (8, 2, 128)),
    case("gpt 3 x 512, vocabulary 8192", gpt(3, 512, 8, 8192), (4, 2, 128)),
    case("gpt 3 x 512, vocabulary 8192, bf16", gpt(3, 512, 8, 8192), (4, 2, 128), "bf16"),
    case("gpt 4 x 256, sequence 256", gpt(4, 256, 4), (4, 4, 256)),
    case("llama 4 x 256", llama(4, 256, 8), (8, 4, 128)),
    case("llama 4 x 256, bf16", llama(4, 256, 8), (8, 4, 128), "bf16"),
    case("llama 3 x 512", llama(3, 512, 8, 2048), (4, 2, 128)),
    case("gpt 6 x 256, recompute full", gpt(6, 256, 8), (8, 4, 128), recompute="full"),
    case("gpt 6 x 256, recompute selective", gpt(6, 256, 8), (8, 4, 128), recompute="selective"),
    case("gpt 6 x 256, optimizer on the host", gpt(6, 256, 8), (8, 4, 128), offload={"optimizer": "host"}),
    case("gpt 4 x 256, data 2", gpt(4, 256, 8), (8, 4, 128), data=2),
    case("gpt 4 x 256, data 2, ZeRO 1", gpt(4, 256, 8), (8, 4, 128), data=2, zero=1),
    case("gpt 4 x 256, data 2, ZeRO 3", gpt(4, 256, 8), (8, 4, 128), data=2, zero=3),
    case("gpt 4 x 256, tensor 2", gpt(4, 256, 8), (8, 4, 128), tensor=2),
    case("gpt 4 x 256, pipe 2, 1f1b", gpt(4, 256, 8), (8, 2, 128), pipe=2),
    case("gpt 4 x 256, pipe 2, gpipe", gpt(4, 256, 8), (8, 2, 128), pipe=2, schedule="gpipe"),
    case("gpt 8 x 256, pipe 2, interleaved", gpt(8, 256, 8), (8, 2, 128), pipe=2, chunks=2, schedule="interleaved"),
    case("gpt 6 x 256, optimizer on the disk", gpt(6, 256, 8), (8, 4, 128), offload={"optimizer": "disk"}),
]


# One GPU: models that keep it busy. Ranks that share a GPU are not among them: it would do the work of all of them in turn.
SMALL, MEDIUM = gpt(12, 768, 12, 50304, 1024), gpt(24, 1024, 16, 50304, 1024)
LARGE, XL = gpt(36, 1280, 20, 50304, 1024), gpt(48, 1600, 25, 50304, 1024)
LLAMA = llama(16, 2048, 16, 32000, 2048)
GPU_CASES = [
    case("gpt 12 x 768, 8 x 1024", SMALL, (8, 8, 1024), "bf16"),
    case("gpt 12 x 768, 32 x 1024", SMALL, (32, 32, 1024), "bf16"),
    case("gpt 12 x 768, 32 x 1024, fp8", SMALL, (32, 32, 1024), "fp8"),
    case("gpt 12 x 768, 64 x 512", SMALL, (64, 64, 512), "bf16"),
    case("gpt 12 x 768, 8 x 2048", gpt(12, 768, 12, 50304, 2048), (8, 8, 2048), "bf16"),
    case("gpt 12 x 768, 32 x 1024 in 4 micro-batches", SMALL, (32, 8, 1024), "bf16"),
    case("gpt 12 x 768, 16 x 1024, recompute full", SMALL, (16, 16, 1024), "bf16", recompute="full"),
    case("gpt 12 x 768, 16 x 1024, recompute selective", SMALL, (16, 16, 1024), "bf16", recompute="selective"),
    case("gpt 12 x 768, 16 x 1024, optimizer on the host", SMALL, (16, 16, 1024), "bf16", offload={"optimizer": "host"}),
    case("gpt 12 x 768, 8 x 512, f32", SMALL, (8, 8, 512)),
    case("gpt 24 x 1024, 16 x 1024", MEDIUM, (16, 16, 1024), "bf16"),
    case("gpt 24 x 1024, 16 x 1024 in 2 micro-batches", MEDIUM, (16, 8, 1024), "bf16"),
    case("gpt 24 x 1024, 16 x 1024, recompute full", MEDIUM, (16, 16, 1024), "bf16", recompute="full"),
    case("gpt 24 x 1024, 16 x 1024, optimizer on the host, a step late", MEDIUM, (16, 16, 1024), "bf16", offload={"optimizer": "host"},
         delayed_update=True),
    case("gpt 24 x 1024, 16 x 1024, activations on the host", MEDIUM, (16, 16, 1024), "bf16", offload={"activations": "host"}),
    case("gpt 24 x 1024, 8 x 1024, f32", MEDIUM, (8, 8, 1024)),
    case("gpt 36 x 1280, 8 x 1024", LARGE, (8, 8, 1024), "bf16"),
    case("gpt 36 x 1280, 8 x 1024, weights and optimizer on the host", LARGE, (8, 8, 1024), "bf16",
         offload={"optimizer": "host", "params": "host"}),
    case("gpt 48 x 1600, 8 x 1024", XL, (8, 8, 1024), "bf16"),
    case("gpt 48 x 1600, 16 x 1024, fp8", XL, (16, 16, 1024), "fp8"),
    case("gpt 48 x 1600, 8 x 1024, recompute full", XL, (8, 8, 1024), "bf16", recompute="full"),
    case("llama 16 x 2048, 4 x 2048", LLAMA, (4, 4, 2048), "bf16"),
    case("llama 16 x 2048, 8 x 2048 in 4 micro-batches", LLAMA, (8, 2, 2048), "bf16"),
    case("llama 16 x 2048, 4 x 2048, recompute full", LLAMA, (4, 4, 2048), "bf16", recompute="full"),
    case("gpt 12 x 768, 16 x 1024, optimizer on the disk", SMALL, (16, 16, 1024), "bf16", offload={"optimizer": "disk"}),
]


def plimsoll(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    return done.stdout


def write_run(folder, config, steps, device="cpu", threads=0):
    text = folder / "text.txt"
    if not text.exists():
        text.write_text("".join(chr(32 + (i * 7919 + i // 13) % 90) for i in range(300_000)))
    out = folder / "out"
    run = {"model": config["model"], "data": {"train": str(text)}, "batch": config["batch"], "precision": config["precision"],
           "strategy": config["strategy"], "device": device, "threads": threads, "steps": steps, "out": str(out), "checkpoint": {"every": 0},
           "limits": {"disk_path": str(folder)}}
    path = folder / "run.json"
    path.write_text(json.dumps(run))
    return path, out


def measure(options, path, out, ranks):
    subprocess.run(["rm", "-rf", out], check=True)
    if options.busy:
        trace = path.with_name("trace.json")
        plimsoll(options.binary, "train", path, "--ranks", ranks, "--fresh", "--trace", trace)
        events = [event for event in json.loads(trace.read_text()) if event.get("ph") == "X" and event["cat"] != "call"]
        return sum(event["args"]["processor_us"] for event in events) / 1e6
    if options.device == "cuda":
        train_steps([options.binary, "train", path, "--fresh"], out, options.steps + UNCOUNTED)
    else:
        plimsoll(options.binary, "train", path, "--ranks", ranks, "--fresh")
    return statistics.median(step_seconds(out)[UNCOUNTED:])


def train_steps(command, out, steps):
    """Ends the run when it has done its steps: the checkpoint that it ends with takes longer than they do where models are large."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while len(step_seconds(out)) < steps and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    errors = process.communicate()[1].strip()
    if len(step_seconds(out)) < steps:
        raise RuntimeError(errors.splitlines()[-1] if errors else f"exit code {process.returncode}")


def step_seconds(out):
    try:
        lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line)["seconds"] for line in lines if line.endswith("\n")]


def round_trip(options):
    if options.device == "cuda":
        return 0.0  # its steps do not depend on the distance of cores
    return json.loads(plimsoll(options.binary, "calibrate", "--cores", "--json"))["round_trip"]


class Rounds:
    """The measurements of all configurations, each with the longer of the cores' round trips before and after it."""

    def __init__(self, names, least):
        self.runs = {name: [] for name in names}
        self.least = least

    def add(self, name, seconds, trip):
        self.least = min(self.least, trip)
        self.runs[name].append((seconds, trip))

    def together(self, name):
        return [seconds for seconds, trip in self.runs[name] if trip <= APART * self.least]

    def counted(self, name):
        return self.together(name) or [seconds for seconds, _ in self.runs[name]]

    def set_aside(self):
        return sum(len(runs) - len(self.together(name)) for name, runs in self.runs.items())

    def never_together(self):
        return [name for name, runs in self.runs.items() if runs and not self.together(name)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, help="so many configurations")
    parser.add_argument("--steps", type=int, default=10, help="of a configuration in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="compare processor time of ranks with one thread")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--calibration", help="a cluster file made by `plimsoll calibrate --out`, or a preset; else it is made now")
    parser.add_argument("--keep", type=pathlib.Path, help="write the calibration and what was predicted and measured to this folder")
    parser.add_argument("--binary", type=pathlib.Path, help="the program, if not that of build/release or, for a GPU, build/cuda")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no further run is begun after so long")
    parser.add_argument("--out", help="bench/results/foresight.md, or foresight_gpu.md for a GPU")
    options = parser.parse_args()
    options.out = options.out or ROOT / "bench/results" / ("foresight.md" if options.device == "cpu" else "foresight_gpu.md")
    options.binary = options.binary or BINARIES[options.device]
    cases = CASES if options.device == "cpu" else GPU_CASES
    if options.busy:
        # What one rank computes is a step where ranks do not wait for each other, nor for a disk.
        cases = [config for config in cases if "pipe" not in config["strategy"] and config["strategy"].get("offload") != {"optimizer": "disk"}]
        options.steps = 1
    cases = cases[: options.only]
    refused = {}
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as name:
        folder = pathlib.Path(name)
        cluster = options.calibration or folder / "this.json"
        begin = time.time()
        if not options.calibration:
            plimsoll(options.binary, "calibrate", "--device", options.device, "--out", cluster, "--scratch", folder)
            if options.keep:
                shutil.copy(cluster, options.keep / "cluster.json")
        calibrated = None if options.calibration else time.time() - begin
        trip = round_trip(options)
        measured = Rounds([config["name"] for config in cases], trip)
        predicted = {}
        for turn in range(3 * options.rounds):
            for config in cases:
                name, strategy = config["name"], config["strategy"]
                enough = turn >= options.rounds and 2 * len(measured.together(name)) >= options.rounds
                if name in refused or enough or ((turn > 0 or options.device == "cuda") and time.time() - begin > options.seconds):
                    continue
                ranks = strategy.get("data", 1) * strategy.get("tensor", 1) * strategy.get("pipe", 1)
                path, out = write_run(folder, config, options.steps + UNCOUNTED, options.device, 1 if options.busy else 0)
                try:
                    if name not in predicted:
                        answer = plimsoll(options.binary, "simulate", path, "--cluster", cluster, "--json")
                        predicted[name] = json.loads(answer)["step_seconds"]
                    before, seconds, trip = trip, measure(options, path, out, ranks), round_trip(options)
                except RuntimeError as error:
                    refused[name] = str(error)
                    print(f"{name:<48} {error}", file=sys.stderr)
                    continue
                measured.add(name, seconds, max(before, trip))
                cores = f"  cores {1e9 * max(before, trip):4.0f} ns" if options.device == "cpu" else ""
                print(f"{name:<60} {1e3 * predicted[name]:9.1f} ms {1e3 * seconds:9.1f} ms{cores}", flush=True)
    refused |= {name: "there was no time for it" for name, runs in measured.runs.items() if not runs and name not in refused}
    rows = [row_of(name, predicted[name], measured.counted(name)) for name in measured.runs if name not in refused]
    if options.keep:
        (options.keep / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    write_table(options, rows, refused, calibrated, measured)


def commit():
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip() or "no commit"


def row_of(name, predicted, medians):
    measured = min(medians)
    return {"name": name, "predicted": predicted, "measured": measured, "error": predicted / measured - 1,
            "spread": max(medians) / measured - 1}


def cores_text(measured):
    total = sum(len(runs) for runs in measured.runs.values())
    text = (f"Cores were {1e9 * measured.least:.0f} ns there and back from each other; {measured.set_aside()} of {total} runs during which "
            "they were apart were set aside")
    never = measured.never_together()
    return text + (f", but for those of {', '.join(never)}, which had no other." if never else ".")


def write_table(options, rows, refused, calibrated, measured):
    errors = [abs(row["error"]) for row in rows]
    pairs = [(a, b) for a, b in itertools.combinations(rows, 2) if abs(a["measured"] / b["measured"] - 1) > max(a["spread"], b["spread"])]
    right = sum((a["predicted"] < b["predicted"]) == (a["measured"] < b["measured"]) for a, b in pairs)
    worst = max(rows, key=lambda row: abs(row["error"]))
    beyond = [row for row in rows if abs(row["error"]) > max(0.15, 2 * row["spread"])]
    where = "processor" if options.device == "cpu" else "GPU"
    source = f"described by `{options.calibration}`" if calibrated is None else f"calibrated in the same run in {calibrated:.0f} s"
    if options.busy:
        source += "; others used it, so what was measured is the processor time of a step of the first rank, with one thread"
    lines = [f"# Predicted and measured step times on this {where}", "",
             f"Made by `./dev bench foresight{'' if options.device == 'cpu' else ' --device cuda'}` at {commit()}; the machine was {source}. "
             f"Of each configuration's rounds, {options.rounds} or more, "
             "the one with the lowest median counts; the repeat spread is how much higher the highest was."
             + (" " + cores_text(measured) if options.device == "cpu" else ""), "",
             f"Median error {100 * statistics.median(errors):.1f}%, worst {100 * abs(worst['error']):.1f}% ({worst['name']}, where "
             f"repeated runs differ by {100 * worst['spread']:.1f}%); beyond the bound (15%, or twice the repeat spread): {len(beyond)}; "
             f"{right} of {len(pairs)} pairs of configurations in the right order.", "",
             "| configuration | predicted ms | measured ms | error | repeat spread |", "|---|---|---|---|---|"]
    lines += [f"| {row['name']} | {1e3 * row['predicted']:.1f} | {1e3 * row['measured']:.1f} | {100 * row['error']:+.1f}% | "
              f"{100 * row['spread']:.1f}% |" for row in rows]
    lines += ["", *(f"Not run: {name}: {reason}" for name, reason in refused.items())] if refused else []
    pathlib.Path(options.out).write_text("\n".join(lines) + "\n")
    print("\n".join(lines[4:5]))


if __name__ == "__main__":
    main()
