#!/usr/bin/env python3
"""Checks that includes go one way.

Reads tools/include_table.txt and the sources and CMakeLists.txt files under src/, and reports, with file and line:
  - an #include of a folder that the table does not allow, or by a path that does not start at src/,
  - two folders that include each other, sub-folders without rows of their own among them,
  - a header of another library outside the folders that may use it,
  - DEPS of plimsoll_folder(...) that the table does not allow, or that lack a folder whose headers are included.
Exit code 0: nothing found; 1: something found; 2: the table itself is wrong.

usage: check_includes.py [--root DIR] [--table FILE]
"""
import argparse
import fnmatch
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SOURCE_SUFFIXES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
FOLDER_CALL = re.compile(r"plimsoll_folder\s*\(([^)]*)\)", re.DOTALL)
KEYWORDS = {"SOURCES", "DEPS", "LIBRARIES"}


class TableError(Exception):
    pass


@dataclass
class Table:
    allowed: dict[str, set[str]] = field(default_factory=dict)  # folder -> folders it may include
    foreign: list[tuple[list[str], list[str]]] = field(default_factory=list)  # header patterns, folder patterns

    def row_of(self, path: str) -> str | None:
        return longest_prefix(path, self.allowed)

    def may_include(self, user: str, used: str) -> bool:
        return user == used or used in self.allowed[user]

    def foreign_rule(self, header: str) -> list[str] | None:
        for headers, folders in self.foreign:
            if any(fnmatch.fnmatchcase(header, pattern) for pattern in headers):
                return folders
        return None


@dataclass
class Unit:
    """One plimsoll_folder call: a library and the folders it links."""
    name: str
    deps: set[str]
    open_ended: bool  # DEPS hold a variable, so that what is missing cannot be known
    place: str


def longest_prefix(path: str, names) -> str | None:
    """The entry of `names` that is `path` or its nearest ancestor: ops for ops/optim/adamw.h."""
    while path:
        if path in names:
            return path
        path = path.rpartition("/")[0]
    return None


def folder_matches(folder: str, pattern: str) -> bool:
    if pattern.startswith("*/"):
        return pattern[2:] in folder.split("/")
    return folder == pattern or folder.startswith(pattern + "/")


def parse_table(text: str) -> Table:
    table = Table()
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        if "@" in line:
            headers, _, folders = line.partition("@")
            table.foreign.append((headers.split(), folders.split()))
            continue
        folder, colon, used = (part.strip() for part in line.partition(":"))
        if not colon:
            raise TableError(f"line {number}: expected 'folder : folders' or 'headers @ folders', found '{line}'")
        if folder in table.allowed:
            raise TableError(f"line {number}: '{folder}' has a row already")
        names = list(table.allowed) if used == "*" else used.split()
        for name in names:
            if name not in table.allowed:
                raise TableError(f"line {number}: '{folder}' may not include '{name}', which has no row above it")
        table.allowed[folder] = set(names)
    return table


def parse_units(src: Path) -> tuple[dict[str, Unit], list[str]]:
    units, problems = {}, []
    for listing in sorted(src.rglob("CMakeLists.txt")):
        text = re.sub(r"#.*", "", listing.read_text())
        for call in FOLDER_CALL.finditer(text):
            place = f"{listing.relative_to(src.parent)}:{text[:call.start()].count(chr(10)) + 1}"
            words = call.group(1).split()
            name, keyword, deps = words[0], "", []
            for word in words[1:]:
                if word in KEYWORDS:
                    keyword = word
                elif keyword == "DEPS":
                    deps.append(word)
            folder = listing.parent.relative_to(src).as_posix()
            if name != folder:
                problems.append(f"{place}: plimsoll_folder({name}) stands in src/{folder}; expected plimsoll_folder({folder})")
            known = {dep for dep in deps if "$" not in dep}
            units[name] = Unit(name, known, len(known) < len(deps), place)
    return units, problems


def check_deps(table: Table, units: dict[str, Unit]) -> list[str]:
    problems = []
    for unit in units.values():
        row = table.row_of(unit.name)
        if row is None:
            problems.append(f"{unit.place}: {unit.name} has no row in the include table")
            continue
        for dep in sorted(unit.deps):
            dep_row = table.row_of(dep)
            if dep_row is None:
                problems.append(f"{unit.place}: DEPS name '{dep}', which has no row in the include table")
            elif not table.may_include(row, dep_row):
                problems.append(f"{unit.place}: DEPS of {unit.name} name {dep}; {allowed_text(table, row)}")
    return problems


def allowed_text(table: Table, row: str) -> str:
    return f"{row} may use: {', '.join(sorted(table.allowed[row])) or 'nothing'}"


def check_file(path: Path, src: Path, table: Table, units: dict[str, Unit]) -> list[str]:
    folder = path.parent.relative_to(src).as_posix()
    name = path.relative_to(src.parent).as_posix()
    row = table.row_of(folder)
    if row is None:
        return [f"{name}:1: src/{folder} has no row in the include table"]
    unit = units.get(longest_prefix(folder, units) or "")
    problems = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = INCLUDE.match(line)
        if found:
            reason = check_include(found.group(1), found.group(2), folder, row, unit, src, table, units)
            if reason:
                problems.append(f"{name}:{number}: {reason}")
    return problems


def check_include(quote, header, folder, row, unit, src, table, units) -> str | None:
    folders = table.foreign_rule(header)
    if folders is not None and not (quote == '"' and (src / header).exists()):
        if any(folder_matches(folder, pattern) for pattern in folders):
            return None
        return f"<{header}> may be included only by: {', '.join(folders)}"
    if quote == "<":
        return None
    used_row = table.row_of(header.rpartition("/")[0])
    if header.startswith(".") or "/../" in header or used_row is None or not header.rpartition("/")[0]:
        return f'"{header}": expected a path from src/, such as "{folder}/{Path(header).name}"'
    if not table.may_include(row, used_row):
        return f'{row} includes "{header}"; {allowed_text(table, row)}'
    used_unit = longest_prefix(header.rpartition("/")[0], units)
    if unit and used_unit and used_unit != unit.name and used_unit not in unit.deps and not unit.open_ended:
        return f'"{header}" is included but DEPS of {unit.name} ({unit.place}) lack {used_unit}'
    return None


def includes_between(files: list[Path], src: Path) -> dict[tuple[str, str], str]:
    """By folder and folder it includes: the first place."""
    found: dict[tuple[str, str], str] = {}
    for path in files:
        folder = path.parent.relative_to(src).as_posix()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            used = match.group(2).rpartition("/")[0] if match and match.group(1) == '"' else ""
            if used and used != folder and (src / used).is_dir():
                found.setdefault((folder, used), f"{path.relative_to(src.parent).as_posix()}:{number}")
    return found


def check_pairs(files: list[Path], src: Path) -> list[str]:
    places = includes_between(files, src)
    pairs = sorted((one, other) for one, other in places if one < other and (other, one) in places)
    return [f"{places[one, other]}: {one} includes {other}, which includes it ({places[other, one]}); move what one of them needs"
            for one, other in pairs]


def check_tree(root: Path, table: Table) -> tuple[list[str], int]:
    src = root / "src"
    units, problems = parse_units(src)
    problems += check_deps(table, units)
    files = sorted(path for path in src.rglob("*") if path.suffix in SOURCE_SUFFIXES)
    for path in files:
        problems += check_file(path, src, table, units)
    return problems + check_pairs(files, src), len(files)


def main(arguments=None) -> int:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Checks that includes go one way.")
    parser.add_argument("--root", type=Path, default=here.parent)
    parser.add_argument("--table", type=Path, default=here / "include_table.txt")
    options = parser.parse_args(arguments)
    try:
        table = parse_table(options.table.read_text())
    except TableError as error:
        print(f"{options.table.name}: {error}", file=sys.stderr)
        return 2
    problems, files = check_tree(options.root, table)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"includes: {files} files, {len(table.allowed)} folders in the table, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
