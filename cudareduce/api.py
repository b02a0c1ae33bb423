"""The same from Python: measure, verify, reveal, load and draw, with results to work on.

`import cudareduce`, then `cudareduce.bench("auto", n=2**25)`. Nothing is printed, and what the
command line says in a sentence is raised as a `CudareduceError`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from json import loads
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

import click

from cudareduce.cli.main import cli
from cudareduce.cli.request import make_request
from cudareduce.errors import UsageError
from cudareduce.gate.compare import Row
from cudareduce.plot.figure import KINDS, Figure
from cudareduce.plot.kinds import figures
from cudareduce.plot.terminal import text_chart
from cudareduce.plot.vega import image
from cudareduce.report.markdown import to_html, to_markdown
from cudareduce.report.section import Section
from cudareduce.report.sections import sections
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load as load_run
from cudareduce.results.store import run_of, to_json, write_bytes, write_text
from cudareduce.reveal.orders import Order

Item = TypeVar("Item")
#: A kernel as on the command line: its name, a suite, a pattern, or a file.
Named = str | Path
#: One or several, as numbers or as on the command line: 2**20, "2^20,2^25", range(1, 9).
Sizes = int | str | Sequence[int]
#: Of a picture in characters, where there is no terminal to ask.
_COLUMNS = 80
#: Options that print or write: a result is shown and saved by itself.
_PRINTED = {
    "style", "columns", "csv", "json", "markdown", "junit", "benchmark_json", "comment", "debug",
}  # fmt: skip
#: Options of the command line alone.
_TYPED_ONLY = ("source", "chunk", "gpus", "meet")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(Generic[Item]):
    """What was found: `items` are records, orders or compared rows, `exit_code` is what the command
    would end with, `json` what its file would hold. A notebook shows it as tables, `print` too."""

    items: tuple[Item, ...]
    exit_code: int
    sections: tuple[Section, ...]
    json: str
    rows: tuple[Mapping[str, Any], ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """A dict for each item, as pandas.DataFrame and polars.DataFrame take them."""
        return [dict(row) for row in self.rows]

    def save(self, path: str | Path) -> None:
        """Write the file that `--json` would. A place that cannot be written to is a UsageError."""
        write_text(Path(path), self.json)

    def __str__(self) -> str:
        return to_markdown(self.sections) or "no records"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return to_html(self.sections) or "<p>no records</p>"


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """The charts of `plot`: a notebook shows them, `print` draws them in characters, and `save`
    writes PNG or SVG. Raises EnvironmentProblem without vl-convert-python or plotext."""

    figures: tuple[Figure, ...]

    def save(self, path: str | Path) -> None:
        """Write it. A name that ends in neither .png nor .svg is a UsageError, and so is a place
        that cannot be written to."""
        style = Path(path).suffix.removeprefix(".")
        if style not in ("png", "svg"):
            raise UsageError(f"{path}: a picture's name ends in .png or .svg")
        write_bytes(Path(path), image(self.figures, style))

    def __str__(self) -> str:
        return "\n".join(text_chart(figure, _COLUMNS, colour=False) for figure in self.figures)

    def __repr__(self) -> str:
        return f"<pictures: {'; '.join(figure.title for figure in self.figures)}>"

    def _repr_png_(self) -> bytes:
        return image(self.figures, "png")


def bench(*kernels: Named, n: Sizes = 2**25, **options: Any) -> Result[Record]:
    """Verify kernels, then time them, as `cudareduce bench` does; without a GPU only verify.

    `options` are those of the command by their names: `op="sum,max"`, `dtype=["float16"]`,
    `rounds=9`, `peers="cub,torch"`, `max_time=60.0`. Raises UsageError, EnvironmentProblem.
    """
    from cudareduce.bench.command import timed_run
    from cudareduce.bench.request import BenchRequest

    request = _request(BenchRequest, "bench", kernels, {"n": n, **options})
    with _main_left_alone():
        done = timed_run(request)
    return _of_run(done.run, sections(done.run, (), done.roots), done.exit_code)


def verify(*kernels: Named, n: Sizes | None = None, **options: Any) -> Result[Record]:
    """Only the answers, as `cudareduce verify`; without sizes those where reductions go wrong.
    Options and errors are as for `bench`."""
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import found_sections, verified

    request = _request(VerifyRequest, "verify", kernels, {"n": n, **options})
    with _main_left_alone():
        done = verified(request)
    return _of_run(done.run, found_sections(done.run), done.exit_code)


def reveal(*kernels: Named, n: Sizes | None = None, **options: Any) -> Result[Order]:
    """In which order kernels and libraries add, as `cudareduce reveal`. Options are those of that
    command, errors as for `bench`."""
    from cudareduce.results.provenance import tool
    from cudareduce.reveal.command import RevealRequest, exit_code, revealed
    from cudareduce.reveal.orders import Table
    from cudareduce.reveal.orders import sections as order_sections
    from cudareduce.reveal.orders import to_json as table_json

    request = _request(RevealRequest, "reveal", kernels, {"n": n, **options})
    with _main_left_alone():
        found = revealed(request)
    table = Table(tool=tool(request.argv), device=found.device, orders=found.orders)
    return Result(
        items=found.orders, exit_code=exit_code(found), json=table_json(table),
        sections=tuple(order_sections(found.orders, found.device)),
        rows=tuple({**asdict(order), "hash": order.hash} for order in found.orders),
    )  # fmt: skip


def load(path: str | Path) -> Result[Record]:
    """A stored run. One that is missing, cut short or another tool's is a UsageError."""
    run = load_run(Path(path))
    return _of_run(run, sections(run), 0)


def compare(old: str | Path, new: str | Path, **options: Any) -> Result[Row]:
    """Two stored runs, as `cudareduce compare`: each item is a row with its verdict. Raises
    UsageError, and BaselineError where they are of machines that cannot be compared."""
    from cudareduce.gate.command import judged_files
    from cudareduce.gate.report import exit_code, judged_sections, rows_json
    from cudareduce.gate.request import CompareRequest
    from cudareduce.library.registry import load_registry

    request = _request(CompareRequest, "compare", (old, new), options)
    judgement = judged_files(request, load_registry())
    text = rows_json(judgement.rows)
    return Result(
        items=judgement.rows, exit_code=exit_code(judgement, request.judging), json=text,
        sections=tuple(judged_sections(judgement, everything=True)), rows=tuple(loads(text)),
    )  # fmt: skip


def plot(
    *results: str | Path | Result[Record],
    kind: str | None = None,
    only: str | Sequence[str] = (),
    n: int | Sequence[int] = (),
) -> Picture:
    """Pictures of runs, stored or just made, as `cudareduce plot`: of a kind or, None, of the one
    that fits, of some kernels by names or patterns, at some sizes. Nothing to draw is a
    UsageError."""
    if kind not in (None, *KINDS):
        raise UsageError(f"{kind} is no kind of picture: there are {', '.join(KINDS)}")
    names = [only] if isinstance(only, str) else only
    sizes = [n] if isinstance(n, int) else n
    return Picture(tuple(figures([_run(result) for result in results], kind, names, sizes)))


def _run(result: str | Path | Result[Record]) -> Run:
    """The run that a file or a result holds."""
    if isinstance(result, Result):
        return run_of(Path("the result"), loads(result.json))
    return load_run(Path(result))


def _of_run(run: Run, found: Sequence[Section], exit_code: int) -> Result[Record]:
    return Result(
        items=run.records, exit_code=exit_code, sections=tuple(found), json=to_json(run),
        rows=tuple(asdict(record) for record in run.records),
    )  # fmt: skip


@contextmanager
def _main_left_alone() -> Iterator[None]:
    """Processes that multiprocessing starts run the caller's script once more, unless all that it
    does is guarded; ours need nothing of it, and so they are not told of it."""
    main = sys.modules["__main__"]
    kept: dict[str, Any] = {
        name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)
    }
    try:
        vars(main).pop("__file__", None)
        main.__spec__ = None
        yield
    finally:
        vars(main).update(kept)


Request = TypeVar("Request")


def _request(
    kind: type[Request], command: str, kernels: Sequence[Named], given: Mapping[str, Any]
) -> Request:
    """The request that the command line would make of the same. A value that will not do is a
    UsageError, an option that the command has not is a TypeError."""
    parser = cli.commands[command]
    known = {param.opts[-1].removeprefix("--").replace("-", "_"): param for param in parser.params
             if isinstance(param, click.Option)
             and param.name not in (*_PRINTED, *_TYPED_ONLY)}  # fmt: skip
    for one in (kernel for kernel in kernels if not isinstance(kernel, str | Path)):
        raise TypeError(f"{command}() takes names and paths, one by one, no {type(one).__name__}")
    arguments = [str(kernel) for kernel in kernels]
    silent = {"quiet": True} if "quiet" in known else {}
    for name, value in {**silent, **given}.items():
        if name not in known:
            raise TypeError(f"{command}() has no option {name!r}: it has {', '.join(known)}")
        arguments += _typed(known[name], value)
    try:
        with parser.make_context(command, arguments) as ctx:
            typed = {"argv": (command, *arguments)} if "argv" in get_type_hints(kind) else {}
            return make_request(kind, {**ctx.params, **typed}, _TYPED_ONLY)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from None


def _typed(option: click.Option, value: Any) -> list[str]:
    """An option as it would be typed."""
    name = option.opts[-1]
    if value is None or value is False:
        return []
    if option.is_flag:
        return [name]
    several = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    words = [str(one) for one in several]
    return [f"{name}={word}" for word in (words if option.multiple else [",".join(words)])]
