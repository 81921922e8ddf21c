#!/usr/bin/env python3
"""Counts how often code outside src/ops asks which operator or instruction it has before it, instead of asking for a fact.

Counted, line by line, are under src/ but not src/ops:
  - holds_alternative<T> and get_if<T> where T is an operator or an instruction of the plan (or a template parameter, which may be one),
  - std::visit over an operator,
  - comparisons with an operator's or a kernel's name.
Operators are the structs with PLIMSOLL_OP in src/ops, instructions the types of plan::Instruction. Tests of other variants, such as
progress events, have a limit of their own.
Exit code 0: within the limits; 1: too many, with every place.

usage: check_op_tests.py [--root DIR] [--list]
"""
import argparse
import re
import sys
from pathlib import Path

# Fewer than these. Lower them when the counts fall.
OPERATOR_LIMIT = 60
OTHER_LIMIT = 11

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
OPERATOR = re.compile(r'struct (\w+) \{(?:(?!\nstruct ).)*?PLIMSOLL_OP\("(\w+)"\)', re.DOTALL)
INSTRUCTIONS = re.compile(r"using Instruction = std::variant<([^>]*)>;")
TEST = re.compile(r"\b(?:holds_alternative|get_if)<\s*(?:const\s+)?([\w:]+)")
VISIT = re.compile(r"std::visit\(.*\bop\)")
TEMPLATE_PARAMETERS = {"Attributes", "Op", "T"}


def read_vocabulary(src: Path) -> tuple[set[str], set[str]]:
    """The types whose tests count, and the names of operators."""
    types, names = set(TEMPLATE_PARAMETERS), set()
    for header in sorted((src / "ops").rglob("*.h")):
        for struct, name in OPERATOR.findall(header.read_text()):
            types.add(struct)
            names.add(name)
    variant = INSTRUCTIONS.search((src / "plan/plan.h").read_text())
    if not names or variant is None:
        sys.exit("check_op_tests: found no operators in src/ops, or no instructions in src/plan/plan.h")
    return types | {name.strip() for name in variant.group(1).split(",")}, names


def name_comparison(names: set[str]) -> re.Pattern:
    # A kernel is called like its operator, with a point and more behind.
    literal = r'"(?:%s)(?:\.[^"]*)?"' % "|".join(sorted(names, key=len, reverse=True))
    return re.compile(rf'[!=]=\s*{literal}|{literal}\s*[!=]=|\b(?:starts_with|ends_with|contains|find)\({literal}'
                      r'|\bname_of\([^()]*\bop\)\s*[!=]=|\bkernel\s*[!=]=\s*(?:"|k[A-Z])')


def count_tests(root: Path) -> tuple[list[str], list[str]]:
    """The places of tests that count, and of those of other variants."""
    src = root / "src"
    types, names = read_vocabulary(src)
    by_name = name_comparison(names)
    operators: list[str] = []
    others: list[str] = []
    for path in sorted(src.rglob("*")):
        if path.suffix not in SOURCES or path.is_relative_to(src / "ops"):
            continue
        text = path.read_text()
        knows_operators = "ops" in text  # elsewhere "linear" is something else
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{path.relative_to(root)}:{number}: {line.strip()}"
            for tested in TEST.findall(line):
                (operators if tested.split("::")[-1] in types else others).append(place)
            if knows_operators:
                operators += [place] * (len(by_name.findall(line)) + len(VISIT.findall(line)))
    return operators, others


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts tests of operators' types and names outside src/ops.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", action="store_true", help="print every place")
    arguments = parser.parse_args()
    operators, others = count_tests(arguments.root)
    too_many = len(operators) >= OPERATOR_LIMIT or len(others) >= OTHER_LIMIT
    if too_many or arguments.list:
        print("\n".join(operators + others))
    print(f"{len(operators)} tests of an operator outside src/ops (fewer than {OPERATOR_LIMIT}), {len(others)} of other variants "
          f"(fewer than {OTHER_LIMIT})")
    if too_many:
        print("ask for a fact in src/ops/definition.h, or add one there; instructions of a plan are taken apart by plan/instructions.h")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
