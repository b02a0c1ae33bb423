"""`report --html`: write one page of result files."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cudareduce import __version__
from cudareduce.catalog.kernel import description, diff
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.report.page.content import errata, lineage, sheet
from cudareduce.report.plot.figure import Figure
from cudareduce.report.plot.kinds import comparison_figures
from cudareduce.report.plot.vega import min_width, notes, page_spec
from cudareduce.results.record import Run
from cudareduce.results.store import check_writable, runs_of, write_text
from cudareduce.text import shown

_REQUIRED = ("jinja2", "vl_convert")
_HEADINGS = {
    "sizes": "Over n",
    "ladder": "The ladder",
    "speedup": "Against libraries",
    "winners": "Who is fastest where",
    "sms": "Over SMs",
    "busbw": "Over bytes",
    "change": "Before and after",
    "gpus": "Several GPUs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The result files, and the page to write."""

    results: tuple[Path, ...]
    html: Path


def page(request: PageRequest) -> int:
    """Write the page. Returns 0; raises UsageError and EnvironmentProblem."""
    if request.html.resolve() in {path.resolve() for path in request.results}:
        raise UsageError(f"{request.html} is a result to read: choose another name")
    check_writable(request.html)
    runs = runs_of(request.results)
    for path, run in runs.items():
        if not run.records:
            raise UsageError(f"{path} holds no records for a page: bench again")
    write_text(request.html, _render(runs))
    say(f"{request.html} shows {counted(len(runs), 'run')}: open it in a browser")
    return 0


def _render(runs: Mapping[Path, Run]) -> str:
    missing = [name for name in _REQUIRED if find_spec(name) is None]
    if missing:
        raise EnvironmentProblem(
            f"a page needs {', '.join(missing)}: pip install 'cudareduce[html]'"
        )
    import vl_convert
    from jinja2 import Environment, PackageLoader

    registry = load_registry()
    hashes = {kernel.id: kernel.sha for kernel in registry.kernels.values()}
    sheets = [
        sheet(run, name, hashes) for run, name in zip(runs.values(), _names([*runs]), strict=True)
    ]
    comparison = comparison_figures([*runs.values()]) if len(runs) > 1 else {}
    charts: list[dict[str, Any]] = []
    groups = [_chart_groups(figures, charts) for figures in (s.figures for s in sheets)]
    compared = _chart_groups(comparison, charts)
    devices = dict.fromkeys(shown(run.device.name) for run in runs.values())
    environment = Environment(
        loader=PackageLoader("cudareduce.report.page"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    specs = [{"spec": page_spec(c["figure"]), "title": c["title"], "notes": c["notes"],
              "minWidth": min_width(c["figure"])} for c in charts]  # fmt: skip
    html: str = environment.get_template("page.html").render(
        title=f"Parallel reductions on {' and '.join(devices)}",
        version=__version__,
        sheets=list(zip(sheets, groups, strict=True)),
        compared=compared,
        registry=registry,
        description=description,
        diff=diff,
        lineage=lineage(registry),
        errata=list(errata(registry.suites.values())),
        charts=_packed(json.dumps(specs, allow_nan=False)),
        raw=[_packed(path.read_text(encoding="utf-8-sig")) for path in runs],
        style=_template("page.css"),
        script=_template("page.js"),
        # The closing tag must not end the script element.
        library=vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace(
            "</script", "<\\/script"
        ),
    )
    return html


def _chart_groups(
    figures: Mapping[str, Sequence[Figure]], charts: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The headings with the indices of their charts; the charts are appended to `charts`."""
    groups = []
    for kind, found in figures.items():
        members = [
            {"number": k, "title": figure.title, "notes": "; ".join(notes(figure)),
             "figure": figure}
            for k, figure in enumerate(found, len(charts))
        ]  # fmt: skip
        charts += members
        groups.append({"kind": kind, "heading": _HEADINGS[kind], "charts": members})
    return groups


def _names(paths: Sequence[Path]) -> list[str]:
    """A name for each file: its file name, or its path if two files have the same name."""
    stems = [path.stem for path in paths]
    return [
        shown(stem if stems.count(stem) == 1 else f"{path.resolve().parent.name}/{stem}")
        for path, stem in zip(paths, stems, strict=True)
    ]


def _packed(text: str) -> str:
    """The text, compressed with gzip and encoded in base64; page.js decodes it."""
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")


def _template(name: str) -> str:
    return files("cudareduce.report.page").joinpath("templates", name).read_text(encoding="utf-8")
