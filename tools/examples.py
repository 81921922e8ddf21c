#!/usr/bin/env python3
"""Writes the examples of headers and pages as one source file, which the test `examples` compiles: an example that does not compile
fails the build, at its own line.

An example is
  - in a header under src/, lines of a comment that are indented by three spaces or more, of which one ends with a semicolon
    (lists, which begin with a dash, are none),
  - in a page (*.md) a block fenced as ```cpp, or one indented by four spaces with such a line.

What an example takes for given, its options and its data, is in a file of sections:

    == src/base/json.h run
    const std::string text = "{}";

With `run` the lines are statements and the example is run as a test. Without it they are parameters, and the example is only compiled.
A section without an example is an error. Lines before the first section are put at the front of the file.
Exit code 0: written; 1: the sections are wrong.

usage: examples.py --given FILE --out FILE [--root DIR]
"""
import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

COMMENT = re.compile(r"^\s*// {3,}(\S.*)$")
EMPTY_COMMENT = re.compile(r"^\s*//\s*$")
INDENTED = re.compile(r"^ {4}(\s*\S.*)$")
STATEMENT = re.compile(r";\s*(//.*)?$")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{", re.MULTILINE)


class SectionError(Exception):
    pass


@dataclass
class Example:
    path: str
    line: int  # of its first
    text: list[str]


@dataclass
class Given:
    run: bool = False
    lines: list[str] = field(default_factory=list)


def is_code(text: list[str]) -> bool:
    return any(STATEMENT.search(line) for line in text) and not any(line.lstrip().startswith("- ") for line in text)


def blocks(path: str, lines: list[str], code, empty) -> list[Example]:
    """Runs of lines that `code` matches; one empty line between two runs joins them."""
    found: list[Example] = []
    for number, line in enumerate(lines, 1):
        match = code.match(line)
        if not match:
            continue
        last = found[-1] if found else None
        gap = number - (last.line + len(last.text)) if last else -1
        if gap == 1 and empty.match(lines[number - 2]):
            last.text.append("")
            gap = 0
        if gap == 0:
            last.text.append(match.group(1))
        else:
            found.append(Example(path, number, [match.group(1)]))
    return [example for example in found if is_code(example.text)]


def fenced(path: str, lines: list[str]) -> list[Example]:
    found, inside = [], False
    for number, line in enumerate(lines, 1):
        if inside and line.startswith("```"):
            inside = False
        elif inside:
            found[-1].text.append(line)
        elif line.strip() == "```cpp":
            inside = True
            found.append(Example(path, number + 1, []))
    return found


def examples_of(path: str, text: str) -> list[Example]:
    lines = text.split("\n")
    if path.endswith(".h"):
        return blocks(path, lines, COMMENT, EMPTY_COMMENT)
    outside, open_fence = [], False
    for line in lines:  # what is fenced is no indented block
        is_fence = line.startswith("```")
        outside.append("```" if is_fence or open_fence else line)
        open_fence ^= is_fence
    return fenced(path, lines) + blocks(path, outside, INDENTED, re.compile(r"^\s*$"))


def read_given(text: str) -> tuple[list[str], dict[str, Given]]:
    preamble, sections = [], {}
    lines = preamble
    for line in text.split("\n"):
        if line.startswith("== "):
            path, *words = line[3:].split()
            if path in sections or words not in ([], ["run"]):
                raise SectionError(f'"{line}" is given twice, or is not "== PATH" or "== PATH run"')
            sections[path] = Given(run=bool(words))
            lines = sections[path].lines
        elif not line.startswith("#") or line.startswith("#include"):
            lines.append(line)
    return preamble, sections


def render(example: Example, number: int, namespace: str, given: Given) -> str:
    name = re.sub(r"\W+", "_", example.path.rsplit(".", 1)[0]) + (f"_{number}" if number else "")
    lines = [line.strip() for line in given.lines if line.strip()]
    parameters = "" if given.run else ", ".join(line.rstrip(";") for line in lines)
    head = f"TEST(Examples, {name}) {{" if given.run else f"[[maybe_unused]] void {name}({parameters}) {{"
    body = lines if given.run else []
    return "\n".join([
        f"namespace {namespace} {{", head, *body, "[&] {", f'#line {example.line} "{example.path}"', *example.text, "}();", "}", "}", "",
    ])


def generate(files: dict[str, str], given_text: str) -> str:
    preamble, sections = read_given(given_text)
    used, headers, bodies = set(), [], []
    for path, text in files.items():
        examples = examples_of(path, text)
        if not examples:
            continue
        used.add(path)
        namespace = "plimsoll"
        if path.startswith("src/") and path.endswith(".h"):
            headers.append(f'#include "{path[4:]}"')
            found = NAMESPACE.search(text)
            namespace = found.group(1) if found else namespace
        bodies += [render(example, number, namespace, sections.get(path, Given())) for number, example in enumerate(examples)]
    if stale := sorted(set(sections) - used):
        raise SectionError(f"there is no example in {', '.join(stale)}: take the section away, or write the example where it was")
    return "\n".join(["// Made by tools/examples.py.", *preamble, "#include <gtest/gtest.h>", *headers, "", *bodies])


def sources(root: Path) -> dict[str, str]:
    pages = [page for pattern in ("*.md", "docs/*.md", "src/**/*.md", "bench/*.md", "examples/**/*.md") for page in root.glob(pattern)]
    return {str(path.relative_to(root)): path.read_text() for path in sorted([*root.glob("src/**/*.h"), *pages])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--given", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        text = generate(sources(arguments.root), arguments.given.read_text())
    except SectionError as error:
        print(f"{arguments.given}: {error}", file=sys.stderr)
        return 1
    # Left alone where nothing changed, so that nothing is compiled again.
    if not arguments.out.exists() or arguments.out.read_text() != text:
        arguments.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
