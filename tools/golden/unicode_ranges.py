"""Writes src/formats/tokenizer/unicode_ranges.inc: what the `tokenizers` package takes characters for, where that is not what
Debian's utf8proc says.

    oracle/bin/python tools/golden/unicode_ranges.py

The package asks three tables of different ages: its regular expressions a new one, BERT's parts a very old one. All of it can be
found by asking the package about every character, so that nothing here depends on knowing its sources.
"""

import ctypes
import io
import pathlib
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[2] / "src" / "formats" / "tokenizer" / "unicode_ranges.inc"
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
PROPERTIES = ["Alphabetic", "Lowercase", "Uppercase"]
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Cherokee Common Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana "
           "Inherited Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Yi").split()
ASCII_PUNCTUATION = {ord(c) for c in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"}
BERT_PARTS = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")


def chunks(size=4096):
    for begin in range(0, len(CODES), size):
        yield CODES[begin:begin + size]


def kept(pre_tokenizer):
    """The characters that a splitter leaves in the text."""
    found = set()
    for chunk in chunks():
        for word, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, chunk))):
            found.update(map(ord, word))
    return found


def digits():
    found, splitter = set(), pre_tokenizers.Digits(individual_digits=True)
    for chunk in chunks():
        for word, _ in splitter.pre_tokenize_str("".join(f"a{chr(code)}a" for code in chunk)):
            if len(word) == 1 and word != "a":
                found.add(ord(word))
    return found


def vanishing(normalizer):
    return {code for code in CODES if normalizer.normalize_str(chr(code)) == ""}


UTF8PROC, LIBC = ctypes.CDLL("libutf8proc.so.2"), ctypes.CDLL(None)
UTF8PROC.utf8proc_map.restype = ctypes.c_ssize_t


def utf8proc(text, options):
    result, written = ctypes.c_void_p(), text.encode()
    size = UTF8PROC.utf8proc_map(written, ctypes.c_ssize_t(len(written)), ctypes.byref(result), options)
    found = ctypes.string_at(result, size).decode()
    LIBC.free(result)
    return found


def kept_whole():
    """What the package leaves as and where it is and utf8proc does not: decompositions and marks that are newer than the package, and
    U+11A7, which utf8proc takes for a final of the Hangul syllable before it."""
    stable, compatible, compose, decompose = 2, 4, 8, 16
    first, last, syllable = "\u0334", "\u0315", "\uC694"  # marks that go before nearly all others, and behind
    probes = [("", "", stable | compatible | decompose, normalizers.NFKD()), ("", first, stable | decompose, normalizers.NFD()),
              (last, "", stable | decompose, normalizers.NFD()), (syllable, "", stable | compose, normalizers.NFC())]
    differs = lambda code: any(utf8proc(before + chr(code) + after, options) != package.normalize_str(before + chr(code) + after)
                               for before, after, options, package in probes)
    return {code for code in CODES if code >= 0x300 and differs(code)}


def marking(codes):
    """Precompiled rules that make a "!" of each of `codes`. One that begins a cluster of up to five bytes makes a "!" of all of it."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("".join(f"{code:X}\t21\n" for code in codes))
        rules.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e"] * 50), model_writer=model, minloglevel=2, vocab_size=20,
                                                 hard_vocab_limit=False, normalization_rule_tsv=rules.name)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)


def cluster_differences():
    """Characters that utf8proc joins to their neighbours otherwise: taken for marks, pictographs and controls by the package."""
    breaks = ctypes.CDLL("libutf8proc.so.2").utf8proc_grapheme_break_stateful
    breaks.restype = ctypes.c_bool

    def joined(*codes):
        state = ctypes.c_int32(0)
        return [not breaks(left, right, ctypes.byref(state)) for left, right in zip(codes, codes[1:])]

    some, all_low = marking([0x61, 0xA9]), marking(code for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000)
    marks = {code for code in CODES if (some.normalize_str("a" + chr(code)) == "!") != joined(0x61, code)[0]}
    pictographs = {code for code in set(CODES) - marks if (some.normalize_str("\xa9\u200d" + chr(code)) != "!" + some.normalize_str(chr(code))) != joined(0xA9, 0x200D, code)[1]}
    controls = {code for code in range(0x80, 0x10000) if not 0xD800 <= code < 0xE000 and (all_low.normalize_str(chr(code) + "\u0301") == "!") != joined(code, 0x301)[0]}
    return marks, pictographs, controls


def pcre(property):
    """The characters of a property, as Debian's PCRE2 has it."""
    library = ctypes.CDLL("libpcre2-8.so.0")
    compile, find, ends = library.pcre2_compile_8, library.pcre2_match_8, library.pcre2_get_ovector_pointer_8
    library.pcre2_match_data_create_8.restype = compile.restype = ctypes.c_void_p
    ends.restype = ctypes.POINTER(ctypes.c_size_t)
    number, offset, pattern = ctypes.c_int(), ctypes.c_size_t(), rf"\p{{{property}}}+".encode()
    utf, ucp = 0x00080000, 0x00020000
    code = ctypes.c_void_p(compile(pattern, ctypes.c_size_t(len(pattern)), utf | ucp, ctypes.byref(number), ctypes.byref(offset), None))
    data = ctypes.c_void_p(library.pcre2_match_data_create_8(1, None))
    found, at = set(), 0
    text = "".join(map(chr, CODES)).encode()
    while find(code, text, ctypes.c_size_t(len(text)), ctypes.c_size_t(at), 0x40000000, data, None) > 0:
        begin, at = ends(data)[:2]
        found.update(map(ord, text[begin:at].decode()))
    return found


def newer_properties():
    rows = []
    for name in PROPERTIES + SCRIPTS:
        ours = pcre(name if name in PROPERTIES else f"sc:{name}")
        theirs = kept(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True))
        print(f"{name}: {len(theirs - ours)} more, {len(ours - theirs)} fewer")
        rows += [f'{{0x{first:X}, 0x{last:X}, "{name.lower()}"}}' for first, last, _ in ranges((code, True) for code in sorted(theirs - ours))]
    return rows


def bert(part):
    return normalizers.BertNormalizer(**{name: name == part for name in BERT_PARTS})


def ranges(items):
    """Runs of neighbouring codes with the same value: (first, last, value)."""
    runs = []
    for code, value in items:
        if runs and runs[-1][1] == code - 1 and runs[-1][2] == value:
            runs[-1][1] = code
        else:
            runs.append([code, code, value])
    return runs


def table(name, element, comment, rows):
    lines = [f"// {comment}", f"constexpr {element} {name}[] = {{"]
    line = "   "
    for row in rows:
        if len(line) + len(row) > 135:
            lines.append(line)
            line = "   "
        line += f" {row},"
    return "\n".join([*lines, line, "};", ""])


def toggles(name, comment, found, expected):
    rows = [f"{{0x{first:X}, 0x{last:X}}}" for first, last, _ in ranges((code, True) for code in sorted(found ^ expected))]
    return table(name, "CodeRange", comment, rows)


def main():
    category = {}
    for name in CATEGORIES:
        for code in kept(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed", invert=True)):
            category[code] = name
    of = lambda *names: {code for code, name in category.items() if name in names or name[0] in names}
    newer = [(code, category.get(code, "Cn")) for code in CODES if category.get(code, "Cn") != unicodedata.category(chr(code))]
    lower = {code: normalizers.Lowercase().normalize_str(chr(code)) for code in CODES}
    lower = [(code, ord(low) - code) for code, low in lower.items() if len(low) == 1 and low != chr(code).lower()]
    marks, pictographs, controls = cluster_differences()
    parts = [
        "// Made by tools/golden/unicode_ranges.py; included by unicode.cpp.",
        table("kNewerCategories", "CategoryRange", "Categories given after Unicode 14, which is the age of Debian's PCRE2.",
              [f'{{0x{a:X}, 0x{b:X}, "{name}"}}' for a, b, name in ranges(newer)]),
        table("kNewerProperties", "CategoryRange", "Properties and scripts that characters have and that PCRE2 does not know of.", newer_properties()),
        table("kNewerLower", "LowerRange", "Lower case since then: what to add.", [f"{{0x{a:X}, 0x{b:X}, {d}}}" for a, b, d in ranges(lower)]),
        toggles("kPunctuationToggles", "Where Punctuation and BertPreTokenizer differ from P and the marks of ASCII.",
                set(CODES) - kept(pre_tokenizers.Punctuation("removed")), of("P") | ASCII_PUNCTUATION),
        toggles("kNumericToggles", "Where Digits differs from N.", digits(), of("N")),
        toggles("kBertMarkToggles", "Where BertNormalizer's strip_accents differs from Mn.", vanishing(bert("strip_accents")), of("Mn")),
        toggles("kAccentToggles", "Where StripAccents differs from M.", vanishing(normalizers.StripAccents()), of("M")),
        toggles("kBertControlToggles", "Where BertNormalizer's clean_text differs from Cc, Cf and Co.",
                vanishing(bert("clean_text")), of("Cc", "Cf", "Co")),
        toggles("kClusterMarks", "What joins the character before it, which utf8proc does not know.", marks, set()),
        toggles("kClusterPictographToggles", "Where what may be joined to another pictograph differs.", pictographs, set()),
        toggles("kClusterControls", "What joins nothing and is joined by nothing, likewise.", controls, set()),
        toggles("kKept", "What normal forms leave as it is in the package, and not in utf8proc.", kept_whole(), set()),
    ]
    OUT.write_text("\n".join(parts))
    print(f"{OUT}: {len(newer)} categories, {len(lower)} lower cases")


main()
