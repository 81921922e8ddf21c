"""Holds our reader of safetensors against the reference one: made files, whole, changed and broken, must be accepted by both or by none.

    oracle/bin/pip install safetensors
    oracle/bin/python tools/golden/safetensors_corpus.py [--plimsoll build/release/src/cli/plimsoll] [--files 2000] [--seed 1]

Headers are changed as people and attackers would: other types, shapes, offsets, keys, lengths, holes, overlaps, white space, and
bytes anywhere. Two differences are meant: the format forbids a key twice, which the reference reader lets pass and ours does not; and
ours refuses an extent of 2^63 and more, which an empty tensor may have there.
"""

import argparse
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import safetensors

SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}


def whole(rng):
    """Tensors one behind the other, in any order of names."""
    header, at = {}, 0
    for index in rng.sample(range(20), rng.randint(0, 5)):
        dtype = rng.choice(list(SIZES))
        shape = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randint(0, 3))]
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        header[f"tensor.{index}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    if rng.random() < 0.3:
        header["__metadata__"] = {"format": "pt"}
    return header, bytes(rng.randrange(256) for _ in range(at))


def changed(rng, header):
    names = [name for name in header if name != "__metadata__"]
    kind = rng.randrange(9)
    if kind == 0 or not names:
        header["__metadata__"] = rng.choice(({}, {"a": 1}, {"a": "b"}, [], None, "x", {"a": {"b": "c"}}))
        return
    tensor = header[rng.choice(names)]
    numbers = (0, 1, -1, 3, 2**31, 2**32, 2**53, 2**63, 2**64 - 1, 2**64, 1.0, 1.5, "1", None, True)
    if kind == 1:
        tensor["dtype"] = rng.choice(("F32", "F31", "f32", 7, None, "BF16", "", "F4", "C64", "F8_E8M0", "F6_E2M3"))
    elif kind == 2 and tensor["shape"]:
        tensor["shape"][rng.randrange(len(tensor["shape"]))] = rng.choice(numbers)
    elif kind == 3:
        tensor["data_offsets"][rng.randrange(2)] = rng.choice(numbers)
    elif kind == 4:
        tensor["data_offsets"] = rng.choice(([], [0], [0, 1, 2], None, {}, [4, 0]))
    elif kind == 5:
        tensor.pop(rng.choice(list(tensor)))
    elif kind == 6:
        tensor[rng.choice(("extra", "name", "Dtype"))] = rng.choice((1, "x", None))
    elif kind == 7:
        delta = rng.choice((-1, 1, 4))
        tensor["data_offsets"] = [offset + delta for offset in tensor["data_offsets"]]
    else:
        tensor["shape"] = rng.choice((tensor["shape"][::-1], tensor["shape"] + [1], [*tensor["shape"], 0], None, 3, [[1]], [2**32, 2**32], [2**63, 2]))


def one(rng):
    header, data = whole(rng)
    if rng.random() < 0.6:
        changed(rng, header)
    text = json.dumps(header, separators=rng.choice(((",", ":"), (", ", ": "))))
    if rng.random() < 0.15:
        text = rng.choice((text + " " * rng.randint(1, 9), " " + text, text + "\n", text + "x", text[:-1], "[" + text + "]", text + "\0", text.replace('"dtype"', '"d\\u0074ype"')))
    if rng.random() < 0.05 and "tensor" in text:
        text = "{" + text[1:-1] + "," + text[1:]  # every key twice
    length = len(text.encode()) + (rng.choice((-1, 1, 8, 2**40, 2**63)) if rng.random() < 0.05 else 0)
    blob = bytearray(struct.pack("<Q", length) + text.encode() + data)
    if rng.random() < 0.1:
        blob = blob[:rng.randint(0, len(blob))]
    if rng.random() < 0.1:
        blob += bytes(rng.randint(1, 4))
    if rng.random() < 0.15 and blob:
        blob[rng.randrange(len(blob))] ^= 1 << rng.randrange(8)
    return bytes(blob)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="build/release/src/cli/plimsoll")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    accepted, different, meant = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "made.safetensors"
        for index in range(arguments.files):
            blob = one(rng)
            try:
                safetensors.deserialize(blob)
                theirs = "accepts"
            except Exception as error:
                theirs = f"refuses: {error}"
            path.write_bytes(blob)
            done = subprocess.run([arguments.plimsoll, "inspect", path], capture_output=True, text=True)
            accepted += theirs == "accepts"
            if "a second time" in done.stderr or re.search(r"found [0-9.]+e\+1[89] for .*shape", done.stderr):
                meant += 1
            elif done.returncode not in (0, 2) or (done.returncode == 0) != (theirs == "accepts"):
                different += 1
                print(f"file {index}: reference {theirs}; ours {done.returncode} {done.stderr.strip()[:200]}: {blob[8:200]!r}")
    print(f"{arguments.files} files, {accepted} accepted by the reference, {different} differences, {meant} refusals meant")
    sys.exit(1 if different else 0)


main()
