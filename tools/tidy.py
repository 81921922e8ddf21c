#!/usr/bin/env python3
"""Runs clang-tidy over src/, several files at a time, and remembers what was clean.

A file is checked again only when it, a project header that it includes, the checks or the flags changed: the marks lie in
.cache/tidy. Files are taken in the order of their last change, newest first, so that with --budget a run on a clean clone
still sees every recent change; what it did not reach is said.

usage: tidy.py --build build/tidy [--clang-tidy clang-tidy-19] [--budget SECONDS] [PATH...]
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "tidy"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FINDING = re.compile(r"^(/\S+?:\d+:\d+): (?:error|warning): .*\[[^]]+\]$", re.MULTILINE)


def git_lines(*arguments: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def newest_first(files: list[Path]) -> list[Path]:
    changed = git_lines("diff", "--name-only", "HEAD") + git_lines("ls-files", "-o", "--exclude-standard")
    age: dict[str, int] = {}
    for name in changed + git_lines("log", "--format=", "--name-only"):
        age.setdefault(name, len(age))
    return sorted(files, key=lambda file: (age.get(file.relative_to(ROOT).as_posix(), len(age)), file))


def project_text(file: Path, seen: set[Path]) -> None:
    """Collects the file and the project headers it reaches."""
    if file in seen or not file.is_file():
        return
    seen.add(file)
    for header in INCLUDE.findall(file.read_text(errors="replace")):
        project_text(ROOT / "src" / header, seen)


class Tidy:
    def __init__(self, options):
        self.program = options.clang_tidy
        self.build = options.build
        version = subprocess.run([self.program, "--version"], capture_output=True, check=True).stdout
        self.salt = version + (ROOT / ".clang-tidy").read_bytes()

    def mark(self, file: Path, command: str) -> Path:
        digest = hashlib.sha256(self.salt)
        digest.update(command.replace(str(ROOT), "").encode())
        reached: set[Path] = set()
        project_text(file, reached)
        for part in sorted(reached):
            digest.update(part.relative_to(ROOT).as_posix().encode())
            digest.update(part.read_bytes())
        return CACHE / digest.hexdigest()

    def check(self, file: Path) -> str:
        """What clang-tidy has to say; empty when the file is clean."""
        done = subprocess.run(
            [self.program, "-p", str(self.build), "--quiet", f"--header-filter=^{re.escape(str(ROOT))}/src/",
             "--extra-arg=-w", str(file)],
            capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout + ("" if FINDING.search(done.stdout) else done.stderr)


def report(texts: list[str]) -> None:
    """Prints each finding once, although a header's are found from every file that includes it."""
    seen = set()
    for text in texts:
        places = FINDING.findall(text)
        if places and all(place in seen for place in places):
            continue
        seen.update(places)
        print(text.replace(f"{ROOT}/", "").rstrip())


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs clang-tidy over src/.")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--clang-tidy", default="clang-tidy-19")
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("paths", nargs="*", type=lambda text: Path(text).resolve(), default=[ROOT / "src"])
    options = parser.parse_args()

    commands = {Path(entry["directory"], entry["file"]).resolve(): entry.get("command", "")
                for entry in json.loads((options.build / "compile_commands.json").read_text())}
    files = [file for file in commands if file.is_relative_to(ROOT / "src") and file.suffix == ".cpp"
             and any(file.is_relative_to(path) for path in options.paths)]
    tidy = Tidy(options)
    CACHE.mkdir(parents=True, exist_ok=True)
    marks = {file: tidy.mark(file, commands[file]) for file in files}
    waiting = newest_first([file for file in files if not marks[file].exists()])
    deadline = time.monotonic() + options.budget

    def work(file: Path) -> str | None:
        if time.monotonic() > deadline:
            return None
        found = tidy.check(file)
        if not found:
            marks[file].touch()
        return found

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(work, waiting))
    report([text for text in results if text])
    bad = sum(1 for text in results if text)
    left = sum(1 for text in results if text is None)
    print(f"clang-tidy: {len(waiting) - left} files checked, {len(files) - len(waiting)} unchanged since they were clean, {bad} with findings"
          + (f", {left} not reached in {options.budget:.0f} s" if left else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
