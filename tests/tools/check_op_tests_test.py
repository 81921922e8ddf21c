#!/usr/bin/env python3
"""Runs tools/check_op_tests.py on small trees with one test of an operator each, and with what only looks like one."""
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_op_tests  # noqa: E402

OPERATORS = """
struct Heads {
  int query = 1;
};

struct Linear {
  bool bias = false;
  PLIMSOLL_OP("linear") { visit("bias", self.bias); }
};

struct Attention {
  Heads heads;
  PLIMSOLL_OP("attention") {}
};
"""
PLAN = "using Instruction = std::variant<Compute, Copy>;"


def counts(line: str, path: str = "src/lowering/pass.cpp") -> tuple[int, int]:
    with tempfile.TemporaryDirectory() as folder:
        files = {"src/ops/linear.h": OPERATORS, "src/plan/plan.h": PLAN, path: f'#include "ops/op.h"\n{line}\n'}
        for name, text in files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        operators, others = check_op_tests.count_tests(Path(folder))
        return len(operators), len(others)


class Counting(unittest.TestCase):
    def test_types_of_operators_and_instructions_count(self):
        self.assertEqual(counts("if (std::holds_alternative<ops::Linear>(node.op)) return;"), (1, 0))
        self.assertEqual(counts("const auto* found = std::get_if<Attributes>(&op);"), (1, 0))
        self.assertEqual(counts("const auto* copy = std::get_if<plan::Copy>(&instruction);"), (1, 0))
        self.assertEqual(counts("a = std::get_if<ops::Linear>(&op); b = std::get_if<ops::Attention>(&op);"), (2, 0))

    def test_names_count(self):
        self.assertEqual(counts('if (ops::name_of(node.op) == "linear") return;'), (1, 0))
        self.assertEqual(counts('if (kernel == "linear.simd") return;'), (1, 0))
        self.assertEqual(counts('if (name.starts_with("linear")) return;'), (1, 0))
        self.assertEqual(counts('if (name == "cosine") return;'), (0, 0))

    def test_visits_of_operators_count(self):
        self.assertEqual(counts("std::visit(cases, node.op);"), (1, 0))
        self.assertEqual(counts("std::visit(cases, instruction);"), (0, 0))

    def test_other_variants_are_counted_apart(self):
        self.assertEqual(counts("if (const auto* done = std::get_if<StepDone>(&event)) note(*done);"), (0, 1))
        self.assertEqual(counts("if (std::holds_alternative<Heads>(value)) return;"), (0, 1))

    def test_operators_may_know_themselves(self):
        self.assertEqual(counts("return std::get_if<Linear>(&op);", "src/ops/fold.cpp"), (0, 0))

    def test_this_tree_is_within_the_limits(self):
        operators, others = check_op_tests.count_tests(TOOLS.parent)
        self.assertLess(len(operators), check_op_tests.OPERATOR_LIMIT, "\n".join(operators))
        self.assertLess(len(others), check_op_tests.OTHER_LIMIT, "\n".join(others))


if __name__ == "__main__":
    unittest.main()
