#!/usr/bin/env python3
"""Runs tools/examples.py on headers and pages of a few lines: what is an example, what is not, and what becomes of it."""
import sys
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import examples  # noqa: E402


def found(text: str, path: str = "src/base/x.h") -> list[tuple[int, list[str]]]:
    return [(example.line, example.text) for example in examples.examples_of(path, text)]


class Extracting(unittest.TestCase):
    def test_indented_comments_with_a_statement(self):
        self.assertEqual(found("// Says.\n//\n//   f(x);  // now\n//   g(x)\n//\n// More.\n"), [(3, ["f(x);  // now", "g(x)"])])

    def test_an_empty_line_does_not_end_an_example(self):
        self.assertEqual(found("//   f();\n//\n//   g();\n"), [(1, ["f();", "", "g();"])])
        self.assertEqual(found("//   f();\n// and\n//   g();\n"), [(1, ["f();"]), (3, ["g();"])])

    def test_tables_formulas_and_lists_are_none(self):
        self.assertEqual(found("//   stage   gradients\n//   0       whole\n"), [])
        self.assertEqual(found("//   m = b m + (1-b) g;  v = b v\n"), [])
        self.assertEqual(found("//   - nothing is read twice;\n//   - and nothing late\n"), [])

    def test_pages(self):
        self.assertEqual(found("Text\n```cpp\nint x = 1;\n```\n```jsonc\n    {;\n```\n", "docs/x.md"), [(3, ["int x = 1;"])])
        self.assertEqual(found("So:\n\n    f();\n\n    g();\n\nText.\n", "docs/x.md"), [(3, ["f();", "", "g();"])])
        self.assertEqual(found("So:\n\n    ./dev test\n", "docs/x.md"), [])


class Writing(unittest.TestCase):
    HEADER = {"src/base/x.h": "//   f(x);\nnamespace plimsoll::base {\n"}

    def test_without_run_an_example_is_a_function_of_what_is_given(self):
        text = examples.generate(self.HEADER, "#include <x>\n== src/base/x.h\nint x;\ndouble y;\n")
        self.assertIn("#include <x>", text)
        self.assertIn('#include "base/x.h"', text)
        self.assertIn("namespace plimsoll::base {\n[[maybe_unused]] void src_base_x(int x, double y) {", text)
        self.assertIn('#line 1 "src/base/x.h"\nf(x);', text)

    def test_with_run_it_is_a_test(self):
        self.assertIn("TEST(Examples, src_base_x) {\nint x = 1;", examples.generate(self.HEADER, "== src/base/x.h run\nint x = 1;\n"))

    def test_every_example_is_written_out(self):
        self.assertIn("f(x);", examples.generate(self.HEADER, ""))

    def test_a_section_without_an_example_is_refused(self):
        with self.assertRaisesRegex(examples.SectionError, "no example in src/base/y.h"):
            examples.generate(self.HEADER, "== src/base/y.h\nint x;\n")


if __name__ == "__main__":
    unittest.main()
