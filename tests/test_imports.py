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
    "__init__", "errors", "budget", "intervals", "dtypes", "sizes", "figures",
    "operators", "expression", "header", "registry", "stranger",
    "backend", "prelude", "plan", "nvml", "guards", "emulator.toolchain", "cpu", "driver", "cuda",
    "backends", "inputs", "reference", "execute", "verify", "isolate", "session",
    "timing.sampling", "timing.warmup", "timing.bindings", "timing.timer", "timing.scenes",
    "timing.measure", "timing.hygiene", "timing.advice",
    "provenance", "record", "store", "join", "timing.trial", "bench", "columns", "report", "output",
    "catalogue", "profiler", "reproduce", "environment", "progress", "run", "model", "sweep",
    "selftest.findings", "selftest.nvbench", "selftest.parts", "selftest.report",
    "gate.thresholds", "gate.fingerprint", "gate.baseline", "gate.significance", "gate.compare",
    "gate.policy", "gate.ci_output", "gate.verdicts", "gate.rerun", "gate.trees", "gate.publish",
    "gate.check",
    "compiled.nvcc", "compiled.resources", "compiled.sass", "compiled.rules", "compiled.store",
    "compiled.compare", "compiled.units", "compiled.check",
    "cli_types", "options", "cli_gate", "cli", "__main__",
)  # fmt: skip
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py" or path.parent == PACKAGE
}
each_module = pytest.mark.parametrize("module", MODULES)


def imports(path: Path, *, lazy: bool) -> set[str]:
    """Modules that a file imports; those inside functions and type checks only if `lazy`."""
    tree = ast.parse(path.read_text())
    nodes = ast.walk(tree) if lazy else iter(tree.body)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_the_order_is_complete() -> None:
    assert set(MODULES) == set(ORDER)


@each_module
def test_a_module_imports_what_comes_before_it(module: str) -> None:
    before = ORDER[: ORDER.index(module)]
    for name in imports(MODULES[module], lazy=False):
        inner = name.removeprefix("cudareduce.")
        assert inner == name or inner not in ORDER or inner in before, f"{module} imports {inner}"


@each_module
def test_only_one_module_knows_pycuda(module: str) -> None:
    roots = {name.split(".")[0] for name in imports(MODULES[module], lazy=True)}
    assert ("pycuda" in roots) == (module == "driver")
    assert "pycuda" not in {name.split(".")[0] for name in imports(MODULES[module], lazy=False)}


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


@each_module
def test_modules_stay_readable(module: str) -> None:
    lines = MODULES[module].read_text().splitlines()
    assert len(lines) <= (450 if module in ("cpu", "cli") else 330)
