"""Tokens per second of GPT-2 124M, one text, against transformers on the CPU."""

from peers import contest
from peers.contest import Contender

DOC = "GPT-2 124M, one text, against transformers"
TARGET = 1.5
TOKENS = 32
WORKS = [("f32", TARGET), ("bf16", None)]


def run(arguments):
    lines = [f"{TOKENS} tokens behind a prompt of 16, random weights, {arguments.threads} threads.", ""]
    for precision, target in WORKS:
        options = ["--precision", precision, "--tokens", TOKENS, *contest.serve_options(arguments)]
        ours = Contender("Plimsoll", [contest.our_program(arguments, "generate"), *options])
        peer = Contender("transformers", [*contest.peer_script(arguments, "torch_generate.py"), *options])
        held = contest.hold(ours, [peer], arguments.repeats)
        rows = contest.timing_rows(held, lambda contender: f"{TOKENS / contender.best:.1f}")
        lines += [f"{precision}:", "", contest.markdown_table([*contest.TIMING_HEADER, "tokens/s"], rows), "", contest.ratio_text(held) +
                  (f"; to reach: {target}x" if target else ""), ""]
    return "\n".join(lines)
