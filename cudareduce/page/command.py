"""`report --html`: one page of result files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce import __version__
from cudareduce.errors import UsageError
from cudareduce.escapes import shown
from cudareduce.library.registry import load_registry
from cudareduce.page.lessons import errata, lessons, lineage
from cudareduce.page.render import Page, render
from cudareduce.page.sheet import sheet
from cudareduce.plot.figure import Figure
from cudareduce.plot.kinds import compared
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.results.record import Run
from cudareduce.results.runs import runs_of
from cudareduce.results.store import check_writable, write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which result files, and where the page goes."""

    results: tuple[Path, ...]
    html: Path


def page(request: PageRequest) -> int:
    """Write the page; 0. Files that do not load or hold nothing, and a place that cannot be
    written, are UsageErrors; what is missing to make it is an EnvironmentProblem."""
    if request.html.resolve() in {path.resolve() for path in request.results}:
        raise UsageError(f"{request.html} is a result that is read: choose another name")
    check_writable(request.html)
    held = runs_of(request.results)
    runs = list(held.values())
    for path, run in held.items():
        if not run.records:
            raise UsageError(f"{path} holds no records, of which a page is made: bench again")
    registry = load_registry()
    texts = {kernel.id: kernel.sha for kernel in registry.kernels.values()}
    found = Page(
        title=_title(runs),
        made=f"cudareduce {__version__}",
        sheets=tuple(
            sheet(run, name, texts)
            for run, name in zip(runs, _names([*held]), strict=True)
        ),
        comparison=_comparison(runs),
        lessons=lessons(registry), lineage=lineage(registry), errata=errata(registry),
        raw=tuple(path.read_text(encoding="utf-8-sig") for path in held),
    )  # fmt: skip
    write_text(request.html, render(found))
    say(f"{request.html} shows {counted(len(runs), 'run')}: open it in a browser")
    return 0


def _title(runs: Sequence[Run]) -> str:
    devices = dict.fromkeys(shown(run.device.name) for run in runs)
    return f"Parallel reductions on {' and '.join(devices)}"


def _names(paths: Sequence[Path]) -> list[str]:
    """The files' names, with their folders where two have one name."""
    stems = [path.stem for path in paths]
    return [
        shown(stem if stems.count(stem) == 1 else f"{path.resolve().parent.name}/{stem}")
        for path, stem in zip(paths, stems, strict=True)
    ]


def _comparison(runs: Sequence[Run]) -> Mapping[str, Sequence[Figure]]:
    return compared(runs) if len(runs) > 1 else {}
