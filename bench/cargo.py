#!/usr/bin/env python3
"""What goes in and out of training, each part beside its peer: the sections of bench/cargo, one file each.

    ./dev bench cargo                          # all sections, written to bench/results/cargo.md
    ./dev bench cargo --only encode            # one section, nothing written
    ./dev bench cargo --quick                  # two rounds of each, nothing written

A section is a module with a DOC string of one line and run(arguments), which returns its part of the report as Markdown, or
a sentence saying why it could not be measured.
"""

import argparse
import importlib

from peers import contest
from peers.contest import report

SECTIONS = ["encode", "generate", "start", "save", "load"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    contest.add_arguments(parser)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="this section (repeatable)")
    return contest.parse(parser)


def main():
    arguments = parse()
    if arguments.only:
        arguments.results = None
    parts = [contest.heading("Cargo: data, models and checkpoints in and out")]
    report(parts[0])
    for name in arguments.only or SECTIONS:
        section = importlib.import_module(f"cargo.{name}")
        parts.append(f"## {name}: {section.DOC}\n\n{section.run(arguments)}\n")
        report(parts[-1])
    contest.write(arguments, "cargo", "\n".join(parts).rstrip())


main()
