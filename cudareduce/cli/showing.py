"""`show`: one kernel in words, then its source, its diff, or what nvcc makes of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from cudareduce.cli.facts import facts_text
from cudareduce.compiled.listing import Shape, ptx_text, sass_text
from cudareduce.compiled.units import main_reduction
from cudareduce.errors import UsageError
from cudareduce.escapes import shown
from cudareduce.library.foreign import adopting
from cudareduce.library.guesses import FileOptions
from cudareduce.library.header import SOURCES
from cudareduce.library.kernel import Kernel
from cudareduce.library.lesson import diff
from cudareduce.library.registry import Registry, load_registry
from cudareduce.problem.operators import Reduction, reduction_of
from cudareduce.report.terminal import coloured

#: The most kernels that an error names.
_NAMED = 10
#: What may stand in a source besides what can be seen.
_LAYOUT = "\n\t"


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """What `show` was asked for: at most one of `diff`, `ptx` and `sass`; `results` are files whose
    times count before those of the package."""

    kernel: str
    files: FileOptions
    diff: bool
    ptx: bool
    sass: bool
    arch: int
    op: str | None
    dtype: str | None
    block: int | None
    items: int | None
    results: tuple[Path, ...]
    folders: tuple[Path, ...]


def show(request: ShowRequest) -> int:
    """Print what was asked for, in colour on a terminal."""
    if request.diff + request.ptx + request.sass > 1:
        raise UsageError("--diff, --ptx and --sass are three things to see: name one of them")
    registry = load_registry(request.folders)
    kernel = _one(registry, request.kernel, request.files)
    if request.diff:
        _print(diff_text(registry, kernel), "diff")
    elif request.ptx or request.sass:
        shape = Shape(request.arch, _reduction(request, kernel), request.block, request.items)
        _print(ptx_text(kernel, shape) if request.ptx else sass_text(kernel, shape), "ptx")
    else:
        _print(facts_text(registry, kernel, request.results) + "\n\n", None)
        _print(kernel.path.read_text(encoding="utf-8", errors="replace"), "cuda")
    return 0


def _one(registry: Registry, name: str, files: FileOptions) -> Kernel:
    """The kernel of this name, or that of a file by what is said of it; a UsageError if it is not
    that of one."""
    found = registry.choose([name], adopting(files.guesses(), lambda words: None))
    if len(found) != 1 and name.endswith(SOURCES):
        entries = ", ".join(choice.kernel.entry for choice in found)
        raise UsageError(f"{name} has {len(found)} kernels; name one with --entry: {entries}")
    if len(found) != 1:
        names = ", ".join(choice.kernel.id for choice in found[:_NAMED])
        names += ", ... (see cudareduce list)" if len(found) > _NAMED else ""
        raise UsageError(f"{name!r} names {len(found)} kernels; show one of: {names}")
    return found[0].kernel


def _reduction(request: ShowRequest, kernel: Kernel) -> Reduction:
    """What it is compiled for: where nothing is said the sum of float32, or the first that it
    takes."""
    usual = main_reduction(kernel)
    if usual is None:
        raise UsageError(f"{kernel.id} takes no operator and type of this tool's")
    return reduction_of(
        request.op or usual.op.name, request.dtype or usual.dtype.name, None, kernel.map
    )


def diff_text(registry: Registry, kernel: Kernel) -> str:
    """What changed against the step before; a UsageError if there is none."""
    if kernel.after is None:
        raise UsageError(
            f"{kernel.id} begins a lineage: there is nothing before it to compare with"
        )
    before = registry.kernels.get(kernel.after)
    if before is None:
        raise UsageError(f"{kernel.path}: after: there is no kernel {kernel.after!r}")
    return diff(before, kernel)


def _print(text: str, language: str | None) -> None:
    """Text on standard output; on a terminal with the colours of its language."""
    text = shown(text, _LAYOUT)
    if language is None or not coloured():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    # PTX has no lexer of its own there; both it and machine code read well as assembly.
    lexer = {"ptx": "gas"}.get(language, language)
    highlighted = Syntax(text, lexer, theme="ansi_dark", background_color="default").highlight(text)
    highlighted.rstrip()
    Console(highlight=False).print(highlighted, soft_wrap=True)
