#!/usr/bin/env python3
"""Runs tools/check_includes.py on small trees that are right, and on trees with one thing wrong each."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_includes  # noqa: E402

TABLE = """
base :
ops : base          # operators
plan : base ops
kernels/cpu : base ops
kernels/cuda : base ops
collectives/mpi : base
cli : *

cuda* cublas* @ */cuda
mpi.h @ */mpi
dnnl* @ kernels/cpu
"""


def problems_of(files: dict[str, str], table=None) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_includes.check_tree(Path(folder), table or check_includes.parse_table(TABLE))[0]


class Tables(unittest.TestCase):
    def expect_refusal(self, text: str, reason: str):
        with self.assertRaisesRegex(check_includes.TableError, reason):
            check_includes.parse_table(text)

    def test_rows_go_one_way(self):
        self.expect_refusal("ops : base\nbase :", "'ops' may not include 'base'")

    def test_cycles_cannot_be_written(self):
        self.expect_refusal("a : b\nb : a", "line 1")

    def test_rows_are_unique_and_well_formed(self):
        self.expect_refusal("base :\nbase :", "line 2: 'base' has a row already")
        self.expect_refusal("base", "expected 'folder : folders'")

    def test_star_is_everything_above(self):
        table = check_includes.parse_table(TABLE)
        self.assertIn("kernels/cuda", table.allowed["cli"])
        self.assertNotIn("cli", table.allowed["cli"])

    def test_the_real_table_parses(self):
        table = check_includes.parse_table((TOOLS / "include_table.txt").read_text())
        for folder in ("kernels/cpu", "kernels/cuda"):
            self.assertFalse(table.allowed[folder] & {"graph", "plan"})
        for folder in ("executor/core", "executor/cpu", "executor/cuda", "executor/sim"):
            self.assertFalse(table.allowed[folder] & {"graph", "strategy", "model"})


class Includes(unittest.TestCase):
    def expect(self, files: dict[str, str], *fragments: str):
        found = problems_of(files)
        self.assertEqual(len(found), len(fragments), found)
        for line, fragment in zip(found, fragments):
            self.assertIn(fragment, line)

    def test_right_tree(self):
        self.expect({
            "base/CMakeLists.txt": "plimsoll_folder(base SOURCES a.cpp)",
            "base/a.cpp": '#include <vector>\n#include <fmt/format.h>\n#include "base/a.h"\n',
            "ops/CMakeLists.txt": "plimsoll_folder(ops\n  SOURCES x.cpp\n  DEPS base  # for errors\n)",
            "ops/x.cpp": '#include "ops/optim/y.h"\n#include "base/a.h"\n',
            "kernels/cpu/k.cpp": '#include <dnnl.hpp>\n#include "ops/x.h"\n',
            "kernels/cuda/k.cu": "#include <cuda_runtime.h>\n",
            "collectives/mpi/m.cpp": "#include <mpi.h>\n",
            "cli/main.cpp": '#include "kernels/cuda/k.h"\n',
        })

    def test_upward_include(self):
        self.expect({"ops/x.h": '\n#include "plan/plan.h"\n'}, 'src/ops/x.h:2: ops includes "plan/plan.h"; ops may use: base')

    def test_sibling_include(self):
        self.expect({"kernels/cuda/k.cu": '#include "kernels/cpu/k.h"\n'}, "kernels/cuda includes")

    def test_subfolder_follows_its_parent(self):
        self.expect({"ops/optim/y.h": '#  include "plan/plan.h"\n'}, "src/ops/optim/y.h:1: ops includes")
        self.expect({"ops/optim/y.h": '#include "ops/x.h"\n'})

    def test_folders_that_include_each_other(self):
        both = {"ops/a.h": '#include "ops/optim/b.h"\n', "ops/optim/b.h": '#include "base/a.h"\n#include "ops/c.h"\n'}
        self.expect(both, "src/ops/a.h:1: ops includes ops/optim, which includes it (src/ops/optim/b.h:2)")
        self.expect({"ops/a.h": '#include "ops/optim/b.h"\n', "ops/optim/b.h": '#include "ops/optim/c.h"\n'})

    def test_relative_and_bare_paths(self):
        self.expect({"ops/x.cpp": '#include "x.h"\n#include "../base/a.h"\n#include "ops/../plan/p.h"\n'},
                    'such as "ops/x.h"', "expected a path from src/", "expected a path from src/")

    def test_vendor_headers(self):
        self.expect({"ops/x.cpp": "#include <cuda_runtime.h>\n#include <mpi.h>\n#include <dnnl.hpp>\n"},
                    "<cuda_runtime.h> may be included only by: */cuda", "<mpi.h> may", "<dnnl.hpp> may")
        self.expect({"kernels/cuda/k.cu": "#include <dnnl.hpp>\n"}, "kernels/cpu")
        self.expect({"base/a.h": '#include "cublasLt.h"\n'}, "*/cuda")

    def test_commented_include_is_no_include(self):
        self.expect({"base/a.h": '// #include "plan/plan.h"\n'})

    def test_unknown_folder(self):
        self.expect({"misc/x.cpp": ""}, "src/misc has no row")

    def test_cmake_deps_against_the_table(self):
        self.expect({"ops/CMakeLists.txt": "\nplimsoll_folder(ops SOURCES x.cpp DEPS base plan LIBRARIES fmt::fmt)"},
                    "src/ops/CMakeLists.txt:2: DEPS of ops name plan")
        self.expect({"ops/CMakeLists.txt": "plimsoll_folder(ops DEPS nothing)"}, "DEPS name 'nothing'")

    def test_cmake_deps_against_the_includes(self):
        files = {
            "base/CMakeLists.txt": "plimsoll_folder(base SOURCES a.cpp)",
            "ops/CMakeLists.txt": "plimsoll_folder(ops SOURCES x.cpp)",
            "ops/x.cpp": '#include "base/a.h"\n',
        }
        self.expect(files, "DEPS of ops (src/ops/CMakeLists.txt:1) lack base")
        files["ops/CMakeLists.txt"] = "plimsoll_folder(ops SOURCES x.cpp DEPS ${others})"
        self.expect(files)

    def test_cmake_name_is_the_folder(self):
        self.expect({"ops/CMakeLists.txt": "plimsoll_folder(base)"}, "expected plimsoll_folder(ops)")

    def test_exit_codes(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "src" / "base").mkdir(parents=True)
            table = root / "table.txt"
            table.write_text(TABLE)
            run = lambda: check_includes.main(["--root", folder, "--table", str(table)])  # noqa: E731
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(run(), 0)
                (root / "src" / "base" / "a.h").write_text('#include "cli/x.h"\n')
                self.assertEqual(run(), 1)
                table.write_text("broken")
                self.assertEqual(run(), 2)


if __name__ == "__main__":
    unittest.main(verbosity=0)
