"""The kernels folder explains itself: its README is complete, its stub parses every kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cudareduce.catalog.registry import Registry
from cudareduce.launch.prelude import prelude
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Reduction
from tests.conftest import ROOT

KERNELS = ROOT / "kernels"
README = (KERNELS / "README.md").read_text(encoding="utf-8")
FAMILIES = sorted(path for path in KERNELS.iterdir() if any(path.glob("*.[ct]*")))


def section(title: str) -> str:
    """The text of the README between a heading and the next."""
    return README.split(f"\n{title}\n", 1)[1].split("\n#", 1)[0]


def declared(text: str) -> set[str]:
    """The names of types, members and constants that C++ text declares for a kernel."""
    types = re.findall(r"^(?:using|struct) (\w+)", text, re.MULTILINE)
    members = re.findall(r"static __device__ \w+ (\w+)\(", text)
    constants = re.findall(r"\b([A-Z]+) = |__constant__ [\w ]+ (\w+);", text)
    return {*types, *members, *(name for pair in constants for name in pair if name)}


def injected() -> set[str]:
    """The names that the prelude declares: those of `sum`, which combines in memory, of `mean`,
    which counts, and of `argmax`, which compares."""
    float32 = DTYPES["float32"]
    names = ("sum", "mean", "argmax")
    each = (Reduction(OPERATORS[name], float32, float32) for name in names)
    return declared("".join(prelude(one, "only", 256, 8, 1) for one in each))


def test_what_is_injected_is_found() -> None:
    assert {"In", "Acc", "Out", "Op", "lift", "atomic", "BLOCK", "ITEMS", "HIGHEST", "COUNT"} <= (
        injected()
    )


def test_the_readme_names_what_is_injected() -> None:
    text = section("## Names that a kernel may use")
    for name in injected():
        assert re.search(rf"`(Op::)?{name}\b", text), name


def test_the_tree_is_the_lineage(registry: Registry) -> None:
    tree = README.split("```text\n", 1)[1].split("```", 1)[0]
    above: list[str] = []
    found: dict[str, str | None] = {}
    for line in tree.splitlines():
        name, title = line.split(maxsplit=1)
        depth = (len(line) - len(line.lstrip())) // 2
        del above[depth:]
        assert len(above) == depth, line
        assert name not in found
        assert title
        found[name] = above[-1] if above else None
        above.append(name)
    assert found == {kernel.id: kernel.after for kernel in registry.kernels.values()}


@pytest.mark.parametrize("folder", FAMILIES, ids=lambda folder: folder.name)
def test_each_family_has_an_introduction_of_two_lines(folder: Path) -> None:
    lines = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert all(line.endswith(".") for line in lines)


def test_the_stub_declares_what_is_injected() -> None:
    stub = (KERNELS / "editor.h").read_text(encoding="utf-8").split("// The tool's: ")[1]
    assert declared(stub) == injected()


@pytest.mark.parametrize("tool", ["clang++", pytest.param("clangd", marks=pytest.mark.slow)])
def test_the_stub_parses_every_kernel(tool: str, registry: Registry) -> None:
    program = shutil.which(tool)
    if program is None:
        pytest.skip(f"{tool} is not installed")
    files = [kernel.path for kernel in registry.kernels.values()]
    commands: list[list[str | Path]] = (
        [[program, "@compile_flags.txt", "-fsyntax-only", *files]]
        if tool == "clang++"
        else [[program, f"--check={path}"] for path in files]
    )
    for command in commands:
        done = subprocess.run(command, cwd=KERNELS, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
