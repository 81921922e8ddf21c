"""Text that tokenizers stumble over, made from a seed: documents(seed, bytes) yields texts of a few hundred characters.

Scripts of many kinds, emoji with joiners and skin tones, combining marks on everything, runs of spaces, tabs and line ends,
numbers, contractions, code, control characters, unassigned ones, and the special tokens of the usual vocabularies.
"""

import random

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x180, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x556), (0x5D0, 0x5EA),
           (0x621, 0x64A), (0x904, 0x939), (0x985, 0x9B9), (0xB85, 0xBB9), (0xE01, 0xE3A), (0x10A0, 0x10FF), (0x1100, 0x11FF),
           (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
           (0xF900, 0xFAFF), (0xFF01, 0xFF9F), (0x10400, 0x1044F), (0x12000, 0x12399), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF),
           (0x2EBF0, 0x2EC20), (0x10D40, 0x10D65)]
MARKS = [(0x300, 0x36F), (0x5B0, 0x5BD), (0x64B, 0x652), (0x93C, 0x94D), (0x1AB0, 0x1ABD), (0x20D0, 0x20F0), (0xFE20, 0xFE2F), (0x1D165, 0x1D169)]
DIGITS = [(0x30, 0x39), (0x660, 0x669), (0x966, 0x96F), (0xFF10, 0xFF19), (0x2150, 0x218B), (0x2460, 0x249B), (0x1D7CE, 0x1D7FF), (0xB2, 0xB3)]
SYMBOLS = [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA1, 0xBF), (0x2010, 0x2027), (0x2030, 0x205E), (0x20A0, 0x20BF),
           (0x2100, 0x214F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2500, 0x257F), (0x3001, 0x3003), (0x3008, 0x3011), (0xFE10, 0xFE19)]
EMOJI = [(0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x2600, 0x27BF), (0x1F1E6, 0x1F1FF)]
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u205f\u3000"
ODD = "\0\x01\x1b\x7f\xad\u200b\u200c\u200d\u200e\u2060\ufeff\ufffd\ufffe\uffff\ue000\U000e0020\U000f0000\u0378\u2581\u0120\u010a\u017f\u0130\u1e9e\u212a"
JOINED = ["\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\u2764\ufe0f\u200d\U0001f525", "\U0001f3f4\U000e0067\U000e0062\U000e007f",
          "1\ufe0f\u20e3", "\U0001f1e9\U0001f1ea"]
WORDS = ["don't", "I'LL", "we've", "They're", "it'S", "I'm", "he'd", "rock'n'roll", "'\u017f", "naïve", "café", "cafe\u0301", "Straße", "ﬁne", "Ⅷ", "İstanbul",
         "ǅ", "œuvre", "N.Y.C.", "e.g.", "3.14159", "1,000,000", "0xDEADBEEF", "2024-05-20T12:34:56Z", "https://example.org/a?b=c&d=%20#e",
         "user@example.org", "snake_case_name", "CamelCaseName", "C++", "->", "!=", "/* x */", "<html>", "&amp;", "\\n", "${HOME}", "```python",
         "supercalifragilisticexpialidocious", "Donaudampfschifffahrtsgesellschaft", "日本語", "東京都", "中文分词", "한국어", "ภาษาไทย", "हिन्दी", "العربية",
         "שָׁלוֹם", "Ελληνικά", "Русский", "tiếng Việt", "ñandú", "the", "of", "and", "in", "to", "that", "unknown"]
TOKENS = ["<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<s>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<0x0A>", "<mask>",
          "<｜end▁of▁sentence｜>", "▁▁", "##ing", "<|reserved_special_token_3|>", "[INST]", "[/INST]"]


def one(rng, ranges):
    first, last = rng.choice(ranges)
    return chr(rng.randint(first, last))


def word(rng):
    script = [rng.choice(SCRIPTS)]
    text = "".join(one(rng, script) for _ in range(rng.choice((1, 2, 3, 5, 8, 13))))
    if rng.random() < 0.2:
        text = "".join(c + "".join(one(rng, MARKS) for _ in range(rng.choice((0, 1, 1, 3)))) for c in text)
    return text


def element(rng):
    kind = rng.random()
    if kind < 0.30:
        return rng.choice(WORDS)
    if kind < 0.50:
        return word(rng)
    if kind < 0.60:
        return "".join(one(rng, DIGITS[:1] if rng.random() < 0.7 else DIGITS) for _ in range(rng.randint(1, 9)))
    if kind < 0.70:
        return "".join(one(rng, SYMBOLS) for _ in range(rng.choice((1, 1, 2, 4, 9))))
    if kind < 0.78:
        return rng.choice(JOINED) if rng.random() < 0.4 else "".join(one(rng, EMOJI) for _ in range(rng.randint(1, 4)))
    if kind < 0.82:
        return rng.choice(ODD) * rng.choice((1, 1, 2))
    if kind < 0.86:
        return rng.choice(TOKENS)
    if kind < 0.93:
        return rng.choice(SPACES) * rng.choice((1, 2, 3, 5, 16, 40))
    if kind < 0.95:
        return rng.choice("=-*_#. aé日") * rng.choice((20, 63, 65, 130, 300))
    return "".join(chr(rng.choice((rng.randint(0, 0xD7FF), rng.randint(0xE000, 0x10FFFF)))) for _ in range(rng.randint(1, 3)))


def document(rng):
    parts = []
    for _ in range(rng.randint(0, 60)):
        parts.append(element(rng))
        parts.append(rng.choice((" ", " ", " ", " ", "", "", "  ", "\n", "\r\n", "\n\n", " \n", "\t")))
    return "".join(parts)


def documents(seed, size):
    """At least `size` bytes of texts; the first few are the shortest and the plainest."""
    rng = random.Random(seed)
    total = 0
    for text in ("", " ", "a", " a", "  a  ", "\n", "Hello world", "<s>", "\u2581"):
        yield text
    while total < size:
        text = document(rng)
        total += len(text.encode())
        yield text
