"""The peer of our encoding: the `tokenizers` package (tokenizer.json) or `sentencepiece` (.model), on one thread.

    python bench/peers/encode.py --tokenizer gpt2.json --documents texts.jsonl --steps 3
"""

import argparse
import json
import os

import protocol

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    protocol.add_arguments(parser)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--documents", required=True, help="JSON lines, each a text")
    return parser.parse_args()


def encoder(path):
    """A function from a text to its number of ids, and the package. The fast form of a batch is the one that keeps no offsets."""
    if not path.endswith(".json"):
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=path)
        return lambda text: len(processor.encode(text)), f"sentencepiece {sentencepiece.__version__}"
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda text: len(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]), f"tokenizers {tokenizers.__version__}"


def main():
    arguments = parse()
    with open(arguments.documents, encoding="utf-8") as file:
        documents = [json.loads(line) for line in file]
    count, version = encoder(arguments.tokenizer)
    size = sum(len(text.encode()) for text in documents)
    tokens = 0

    def step():
        nonlocal tokens
        tokens = sum(map(count, documents))

    protocol.serve(arguments, step, lambda best: {"peer": version, "bytes": size, "tokens": tokens, "bytes_per_second": size / best})


main()
