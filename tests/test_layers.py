"""Rules about the package's source that lint-imports (setup.cfg) cannot express."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache

from tests.conftest import ROOT

PACKAGE = ROOT / "cudareduce"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text())


def functions(module: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(parsed(module))
    return [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_no_options_without_types() -> None:
    """Below the command line no function has a parameter `options`: parameters are typed."""
    below = [module for module in MODULES if not module.startswith("cli.")]
    for module, function in ((m, f) for m in below for f in functions(m)):
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        assert "options" not in {argument.arg for argument in arguments}, module


def test_backends_are_compared_in_one_place() -> None:
    """Only `backends.selection` compares a backend's name or tests its class."""
    others = [module for module in MODULES if module != "backends.selection"]
    for module, node in ((m, node) for m in others for node in ast.walk(parsed(m))):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            words = {side.value for side in sides if isinstance(side, ast.Constant)}
            assert not words & {"cuda", "cpu"}, f"{module}:{node.lineno}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            kinds = ast.unparse(node.args[1])
            assert "Backend" not in kinds, f"{module}:{node.lineno}"


def test_help_imports_little() -> None:
    code = (
        "import sys; from cudareduce.cli.main import run; run(['--help']); "
        "heavy = {'numpy', 'pycuda', 'rich', 'tabulate', 'scipy', 'plotext', 'vl_convert', "
        "'jinja2'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Benchmark CUDA parallel reductions" in done.stdout
