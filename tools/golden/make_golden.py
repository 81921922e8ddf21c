"""Writes tests/golden/data: what whole models must compute, and a 200-step training curve.

    python tools/golden/make_golden.py                      # every case and the curve
    python tools/golden/make_golden.py --only gpt2-tiny     # one of them
    python tools/golden/make_golden.py --check              # recompute, compare with the stored files, write nothing

The stored numbers are float64 results rounded to f32; the table printed at the end shows how far eager f32 PyTorch is
from them in units of the tolerance, which is the proof that the tolerance can be met. tests/golden/README.md says
what each file holds.
"""

import argparse
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import torch
from safetensors.torch import load_file, save_file

import cases
import curve
import reference

SEED = 20240229
STEPS = 20
GRADIENT_TOLERANCE = 1e-5  # x max(max|g| of the tensor, 1e-3 x max|g| of the model)
SMALL_GRADIENT = 1e-3
LOSS_TOLERANCE = 1e-4
DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "data"


def gradient_error(found, expected):
    """Largest difference in units of the tolerance, and the parameter it is in."""
    largest = max(g.abs().max().item() for g in expected.values())
    worst = (0.0, "")
    for name, g in expected.items():
        allowed = GRADIENT_TOLERANCE * max(g.abs().max().item(), SMALL_GRADIENT * largest)
        worst = max(worst, ((found[name].double() - g.double()).abs().max().item() / allowed, name))
    return worst


def check_packed(model, batch, loss):
    """Each document run alone, without any mask, must give the loss of the packed batch."""
    total, count = 0.0, 0
    for row in range(batch["input_ids"].shape[0]):
        segments = batch["segment_ids"][row]
        for segment in segments.unique():
            where = segments == segment
            alone = {name: batch[name][row][where][None] for name in ("input_ids", "labels", "position_ids")}
            valid = (alone["labels"] != reference.IGNORED).sum().item()
            if valid == 0:
                continue
            with torch.no_grad(), reference.arithmetic(model.dtype):
                total += reference.forward(model, alone)[1].item() * valid
            count += valid
    assert abs(total / count - loss.item()) < 1e-12, (total / count, loss.item())


def make_case(case):
    """The case's files as {name: tensors or JSON}, and its row of the table."""
    settings = reference.Optimizer(lr=case.lr)
    weights = cases.make_weights(case, SEED)
    batches = cases.make_batches(case, SEED)
    first = reference.pick(batches, 0)

    exact = reference.build(case.model_class, case.config, torch.float64, weights)
    logits, loss, gradients = reference.gradients(exact, first)
    if case.kind == "packed":
        check_packed(exact, first, loss)
    losses, norms = reference.train(exact, batches, settings, STEPS)

    single = reference.build(case.model_class, case.config, torch.float32, weights)
    logits32, loss32, gradients32 = reference.gradients(single, first)
    losses32, norms32 = reference.train(single, batches, settings, STEPS)
    seen = first.get("attention_mask", torch.ones_like(first["input_ids"])).bool()

    stored = {f"grad.{name}": g for name, g in gradients.items()}
    stored |= {"logits": logits, "loss": loss.reshape(1), "losses": losses, "grad_norm": norms}
    expect = {name: tensor.to(torch.float32).contiguous() for name, tensor in stored.items()}
    files = {
        "config.json": reference.written_config(case.model_class, case.config, weights),
        "run.json": cases.run_file(case.config, case.batch, case.sequence, settings, STEPS),
        "weights.safetensors": weights,
        "batch.safetensors": {name: tensor.contiguous() for name, tensor in batches.items()},
        "expect.safetensors": expect,
    }
    ratio, worst = gradient_error(gradients32, gradients)
    row = {
        "case": case.name,
        "params": sum(w.numel() for w in weights.values()),
        "loss": loss.item(),
        "last": losses[-1].item(),
        "norm": f"{norms.min().item():.2f}-{norms.max().item():.2f}",
        "d_logits": ((logits32 - logits).abs().amax(-1)[seen].max() / logits.abs().max()).item(),
        "d_loss": abs(loss32.item() - loss.item()),
        "d_losses": (losses32 - losses).abs().max().item(),
        "d_norms": ((norms32 - norms).abs() / norms).max().item(),
        "grad/tol": ratio,
        "worst": worst,
    }
    assert ratio <= 1.0 and row["d_losses"] <= LOSS_TOLERANCE, row
    return files, row


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if name.endswith(".safetensors"):
            save_file(content, path)
        elif name.endswith(".json"):
            path.write_text(json.dumps(content, indent=2) + "\n")
        else:
            path.write_bytes(content)


def differences(folder, files):
    """Stored files that are not what was just computed: integers, weights and texts exactly, results to 1e-6."""
    found = []
    for name, content in files.items():
        path = folder / name
        if not path.exists():
            found.append(f"{path}: missing")
        elif name.endswith(".safetensors"):
            stored = load_file(path)
            if stored.keys() != content.keys():
                found.append(f"{path}: other tensors: {sorted(stored.keys() ^ content.keys())}")
                continue
            exact = name != "expect.safetensors"
            for key, tensor in content.items():
                slack = 0.0 if exact else 1e-6 * tensor.abs().max().item()
                if stored[key].shape != tensor.shape or (stored[key] - tensor).abs().max().item() > slack:
                    found.append(f"{path}: {key} differs")
        elif name.endswith(".json"):
            stored = json.loads(path.read_text())
            volatile = {"transformers_version"}
            if {k: v for k, v in stored.items() if k not in volatile} != {k: v for k, v in content.items() if k not in volatile}:
                found.append(f"{path}: differs")
        elif path.read_bytes() != content:
            found.append(f"{path}: differs")
    return found


def print_table(rows):
    print(f"{'case':<23}{'params':>7} {'loss':>7} {'last':>7} {'grad norms':>11} {'logits':>8} {'loss':>8} {'losses':>8} {'norms':>8} "
          f"{'grad/tol':>8}  worst parameter")
    for r in rows:
        print(f"{r['case']:<23}{r['params']:>7} {r['loss']:>7.4f} {r['last']:>7.4f} {r['norm']:>11} {r['d_logits']:>8.1e} "
              f"{r['d_loss']:>8.1e} {r['d_losses']:>8.1e} {r['d_norms']:>8.1e} {r['grad/tol']:>8.3f}  {r['worst']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=DATA, help="folder of the cases")
    parser.add_argument("--only", action="append", help="a case's name, or curve; may be given several times")
    parser.add_argument("--check", action="store_true", help="compare with the stored files instead of writing")
    parser.add_argument("--text", type=pathlib.Path, help="KJV text for the curve (default: the stored corpus, else the bible program)")
    arguments = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)

    known = [case.name for case in cases.all_cases()] + ["curve"]
    unknown = set(arguments.only or []) - set(known)
    if unknown:
        parser.error(f"no case {sorted(unknown)}; there are {known}")
    wanted = arguments.only or known
    made, rows = {}, []
    for case in cases.all_cases():
        if case.name in wanted:
            made[case.name], row = make_case(case)
            rows.append(row)
    if rows:
        print("eager f32 PyTorch against the float64 reference (differences; gradients in units of the tolerance):")
        print_table(rows)
    if "curve" in wanted:
        made["curve"] = curve.make(arguments.text, arguments.out / "curve")

    problems = []
    for name, files in made.items():
        if arguments.check:
            problems += differences(arguments.out / name, files)
        else:
            write(arguments.out / name, files)
    print("\n".join(problems) if problems else f"{len(made)} {'as stored' if arguments.check else 'written'}: {', '.join(made)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
