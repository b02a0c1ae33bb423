"""The house is as planned: few rooms, small modules, `--help` quick and light.

That data flows one way, and that no import runs in a circle, `lint-imports` says (setup.cfg).
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "cudareduce"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
#: A package asks one question; this many are all that one finds one's way in.
MOST_ROOMS, MOST_LINES, MOST_LINES_OF_A_FUNCTION = 39, 300, 50
COMMANDS = (
    "bench.command.bench", "bench.verify_command.verify", "gate.command.check",
    "gate.command.check_base", "gate.command.check_self", "gate.command.compare_files",
    "history.command.add", "history.command.show", "history.command.check", "sweep.command.sweep",
    "reproduce.command.reproduce", "selftest.command.selftest", "reveal.command.reveal",
    "tune.command.tune", "plot.command.plot", "page.command.page", "profile.command.profile",
    "bench.stream.command.bench_streams", "bench.stream.command.verify_streams",
    "several.check.again.check_ranks", "several.check.trees.check_base_ranks",
    "several.check.two_nccls.check_nccl", "several.command.collective",
    "several.links.command.links",
    "several.fleet.command.gather", "several.fleet.command.fleet",
)  # fmt: skip
MOST_LINES_OF_A_COMMAND = 40


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def functions(module: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(parsed(module))
    return [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def test_there_are_few_rooms() -> None:
    entries = [path for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= MOST_ROOMS, sorted(path.name for path in entries)
    single = {path.stem for path in entries if path.suffix == ".py"}
    ground = {"errors", "escapes", "budget", "intervals", "progress",
              "signals", "temporary"}  # fmt: skip
    assert single == {"__init__", "__main__", "api", "backend", "backends", *ground}


def test_modules_and_functions_stay_small() -> None:
    lines = {module: path.read_text().count("\n") for module, path in MODULES.items()}
    assert not [module for module, count in lines.items() if count > MOST_LINES]
    assert not [f"{module}.{f.name}" for module in MODULES for f in functions(module)
                if length(f) > MOST_LINES_OF_A_FUNCTION]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_told_in_one_function(command: str) -> None:
    module, _, name = command.rpartition(".")
    found = [f for f in functions(module) if f.name == name]
    assert [length(f) <= MOST_LINES_OF_A_COMMAND for f in found] == [True]


def test_no_options_without_types() -> None:
    """Below the command line no function takes a mapping of anything under that name."""
    below = [module for module in MODULES if not module.startswith("cli.")]
    for module, function in ((m, f) for m in below for f in functions(m)):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        assert "options" not in {argument.arg for argument in arguments}, module


def test_backends_are_told_apart_in_one_place() -> None:
    """No comparison with a backend's name, and no question for its class, but in `backends`."""
    others = [module for module in MODULES if module != "backends"]
    for module, node in ((m, node) for m in others for node in ast.walk(parsed(m))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {side.value for side in sides if isinstance(side, ast.Constant)}
            assert not words & {"cuda", "cpu"}, f"{module}:{node.lineno}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            kinds = ast.unparse(node.args[1])
            assert "Backend" not in kinds, f"{module}:{node.lineno}"


def test_public_names_have_docstrings() -> None:
    for module in MODULES:
        assert ast.get_docstring(parsed(module)), module
        for node in parsed(module).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{module}.{node.name}"


def test_help_imports_little() -> None:
    code = (
        "import sys; from cudareduce.cli.main import run; run(['--help']); "
        "heavy = {'numpy', 'pycuda', 'rich', 'tabulate', 'scipy', 'matplotlib', 'plotext', "
        "'altair', 'jinja2'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Benchmark CUDA parallel reductions" in done.stdout
