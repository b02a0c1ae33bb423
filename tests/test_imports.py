"""Data flows one way, heavy imports stay where they are needed, `--help` is quick and light."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "cudareduce"
#: A module imports only from modules before it.
ORDER = (
    "__init__", "errors", "budget", "intervals", "dtypes", "sizes", "figures", "operators",
    "expression", "header", "registry", "stranger",
    "backend", "prelude", "plan", "nvml", "guards", "emulator", "cpu", "driver", "cuda", "backends",
    "inputs", "reference", "execute", "verify", "isolate", "session", "sampling", "warmup",
    "bindings",
    "timer", "scenes", "measure", "hygiene", "provenance", "record", "store", "join", "advice",
    "trial", "bench", "columns", "report", "catalogue", "profiler", "reproduce", "environment",
    "progress",
    "run", "model", "sweep", "findings", "nvbench", "selftest", "selfreport",
    "thresholds", "fingerprint", "baseline", "significance", "compare", "gate", "ci_output",
    "verdicts", "rerun", "trees", "publish", "check",
    "nvcc", "resources", "sass", "compile_rules", "compile_store", "compile_compare",
    "compile_units", "compile_check", "cli_types", "options", "cli_gate", "cli", "__main__",
)  # fmt: skip
MODULES = sorted(PACKAGE.glob("*.py"))


def imports(path: Path, *, lazy: bool) -> set[str]:
    """Modules that a file imports; those inside functions and type checks only if `lazy`."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if lazy else iter(tree.body)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_the_order_is_complete() -> None:
    assert {path.stem for path in MODULES} == set(ORDER) - {"emulator"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_imports_what_comes_before_it(path: Path) -> None:
    for name in imports(path, lazy=False):
        if name.startswith("cudareduce."):
            inner = name.split(".")[1]
            assert ORDER.index(inner) < ORDER.index(path.stem), f"{path.stem} imports {inner}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_only_one_module_knows_pycuda(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path, lazy=True)}
    assert ("pycuda" in roots) == (path.stem == "driver")
    assert "pycuda" not in {name.split(".")[0] for name in imports(path, lazy=False)}


def test_help_is_quick_and_imports_little() -> None:
    code = (
        "import sys; from cudareduce.cli import run; run(['--help']); "
        "heavy = {'numpy', 'pycuda', 'rich', 'tabulate', 'scipy'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        assert done.returncode == 0, done.stderr
        assert "Benchmark CUDA parallel reductions" in done.stdout
    assert min(times) < 2  # generous: a busy machine; the figure to look at is 0.2 s


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_stay_readable(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= (450 if path.stem in ("cpu", "cli") else 330)
