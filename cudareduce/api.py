"""The Python API: bench, verify, reveal, load, compare and plot.

`import cudareduce`, then `cudareduce.bench("auto", n=2**25)`. Nothing is printed; the errors of the
command line are raised as a `CudareduceError`. Modules are imported in the functions, so that
`import cudareduce` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from cudareduce.errors import UsageError

if TYPE_CHECKING:
    import click

    from cudareduce.analysis.reveal.orders import Order
    from cudareduce.compare.verdicts import Row
    from cudareduce.report.plot.figure import Figure
    from cudareduce.report.section import Section
    from cudareduce.results.record import Record, Run

Item = TypeVar("Item")
#: A kernel, suite, pattern or file, as on the command line.
Named = str | Path
#: One or several sizes, as numbers or as on the command line: 2**20, "2^20,2^25", range(1, 9).
Sizes = int | str | Sequence[int]
#: One or several words, as a list or as on the command line: "sum,max".
Words = str | Sequence[str] | None
#: Width of a chart in characters.
_COLUMNS = 80
#: Options that print or write; a Result has methods for that.
_PRINTED = {
    "style", "columns", "csv", "json", "markdown", "junit", "benchmark_json", "comment", "debug",
}  # fmt: skip
#: Options without support in the API.
_COMMAND_LINE_ONLY = ("source", "chunk", "gpus", "meet")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(Generic[Item]):
    """The result of a command: `items` are records, summation orders or compared rows, `exit_code`
    and `json` are those of the command. Notebooks and `print` show it as tables."""

    items: tuple[Item, ...]
    exit_code: int
    sections: tuple[Section, ...]
    json: str
    rows: tuple[Mapping[str, Any], ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """One dict per item, for pandas.DataFrame and polars.DataFrame."""
        return [dict(row) for row in self.rows]

    def save(self, path: str | Path) -> None:
        """Write the file of `--json`. Raises UsageError if it cannot be written."""
        from cudareduce.results.store import write_text

        write_text(Path(path), self.json)

    def __str__(self) -> str:
        from cudareduce.report.markdown import to_markdown

        return to_markdown(self.sections) or "no records"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from cudareduce.report.markdown import to_html

        return to_html(self.sections) or "<p>no records</p>"


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """The charts of `plot`: notebooks show them, `print` draws them in characters, and `save`
    writes PNG or SVG. Raises EnvironmentProblem without vl-convert-python or plotext."""

    figures: tuple[Figure, ...]

    def save(self, path: str | Path) -> None:
        """Write a .png or .svg file. Raises UsageError for another name, and if it cannot be
        written."""
        from cudareduce.report.plot.vega import image
        from cudareduce.results.store import write_bytes

        style = Path(path).suffix.removeprefix(".")
        if style not in ("png", "svg"):
            raise UsageError(f"{path}: the file name of a picture must end in .png or .svg")
        write_bytes(Path(path), image(self.figures, style))

    def __str__(self) -> str:
        from cudareduce.report.plot.terminal import text_chart

        return "\n".join(text_chart(figure, _COLUMNS, colour=False) for figure in self.figures)

    def __repr__(self) -> str:
        return f"<pictures: {'; '.join(figure.title for figure in self.figures)}>"

    def _repr_png_(self) -> bytes:
        from cudareduce.report.plot.vega import image

        return image(self.figures, "png")


def bench(
    *kernels: Named,
    n: Sizes = 2**25,
    op: Words = None,
    dtype: Words = None,
    rows: int = 1,
    timing: Words = "cold",
    rounds: int = 9,
    libraries: Words = (),
    backend: str = "auto",
    max_time: float | None = None,
    **options: Any,
) -> Result[Record]:
    """Verify kernels, then time them, like `cudareduce bench`; without a GPU only verify.

    kernels    names, short names (`"v7"`), suites, families, globs, paths of .cu files, `"all"`
               or `"auto"`; all kernels if there are none
    n          number of elements: `2**25`, `[2**20, 2**25]` or `"2^20,2^25"`
    op         operators: `"sum"`, `["sum", "max"]` or `"all"`; by default sum
    dtype      element types: `"float32"`, `["half", "int"]` or `"all"`; by default float32
    rows       number of rows, each of n elements
    timing     cache state: `"cold"`, `"warm"` or both
    rounds     number of independent rounds; confidence intervals need at least 6
    libraries  libraries to compare with: `"cub,torch"` or `"all"`
    backend    `"cuda"`, `"cpu"` (an emulator, never timed) or `"auto"`
    max_time   time limit of the whole run, in seconds

    Further options are those of the command, with underscores: `baseline_kernel="v7"`,
    `seed=1`, `graph=True`. Each item of the result is a record, with times in microseconds. A wrong
    kernel is a verdict and no exception. Raises UsageError for a value that is not accepted, and
    EnvironmentProblem if the machine lacks something.
    """
    from cudareduce.bench.command import timed_run
    from cudareduce.bench.request import BenchRequest
    from cudareduce.report.sections import sections

    given = {"n": n, "op": op, "dtype": dtype, "rows": rows, "timing": timing, "rounds": rounds,
             "libraries": libraries, "backend": backend, "max_time": max_time}  # fmt: skip
    request = _request(BenchRequest, "bench", kernels, given | options)
    with _hidden_main():
        done = timed_run(request)
    return _of_run(done.run, sections(done.run, (), done.roots), done.exit_code)


def verify(
    *kernels: Named,
    n: Sizes | None = None,
    op: Words = None,
    dtype: Words = None,
    rows: int = 1,
    libraries: Words = (),
    backend: str = "auto",
    max_time: float | None = None,
    **options: Any,
) -> Result[Record]:
    """Check the results of kernels without timing them, like `cudareduce verify`.

    Without `n`, sizes that reveal errors are tested. Other parameters, further options (such as
    `pattern="zero"` or `entry="reduce6<float, 256>"`) and errors are those of `bench`.
    """
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import found_sections, verified

    given = {"n": n, "op": op, "dtype": dtype, "rows": rows, "libraries": libraries,
             "backend": backend, "max_time": max_time}  # fmt: skip
    request = _request(VerifyRequest, "verify", kernels, given | options)
    with _hidden_main():
        done = verified(request)
    return _of_run(done.run, found_sections(done.run), done.exit_code)


def reveal(
    *kernels: Named,
    n: Sizes | None = None,
    dtype: Words = None,
    rows: int | None = None,
    backend: str = "auto",
    **options: Any,
) -> Result[Order]:
    """Find the summation order of kernels and libraries, like `cudareduce reveal`.

    `kernels` may also name libraries (`"cub"`) or `"peers"` for all of them; `n` is 1024 by
    default, and `dtype` is one or several float types. Each item is an order, with its tree, depth
    and hash. Errors are those of `bench`.
    """
    from cudareduce.analysis.reveal.command import RevealRequest, exit_code, reveal_names
    from cudareduce.analysis.reveal.orders import Table
    from cudareduce.analysis.reveal.orders import sections as order_sections
    from cudareduce.analysis.reveal.orders import to_json as table_json
    from cudareduce.results.provenance import tool

    given = {"n": n, "dtype": dtype, "rows": rows, "backend": backend}
    request = _request(RevealRequest, "reveal", kernels, given | options)
    with _hidden_main():
        revealed = reveal_names(request)
    table = Table(tool=tool(request.argv), device=revealed.device, orders=revealed.orders)
    return Result(
        items=revealed.orders, exit_code=exit_code(revealed), json=table_json(table),
        sections=tuple(order_sections(revealed.orders, revealed.device)),
        rows=tuple({**asdict(order), "hash": order.hash} for order in revealed.orders),
    )  # fmt: skip


def load(path: str | Path) -> Result[Record]:
    """Load a stored run. Raises UsageError if it is missing, truncated or another kind of file."""
    from cudareduce.report.sections import sections
    from cudareduce.results.store import load as load_run

    run = load_run(Path(path))
    return _of_run(run, sections(run), 0)


def compare(
    old: str | Path, new: str | Path, *, threshold: str | None = None, strict: bool = False,
    **options: Any,
) -> Result[Row]:  # fmt: skip
    """Compare two stored runs, like `cudareduce compare`: each item is a row with its verdict.

    `threshold` is the smallest change that counts, by default `"5%"`; with `strict`, exit_code is 4
    if a verdict is UNCERTAIN. Further options are those of the command, such as
    `cross_device=True`. Raises UsageError, and BaselineError if their machines cannot be compared.
    """
    from cudareduce.catalog.registry import load_registry
    from cudareduce.compare.check import compare_runs
    from cudareduce.compare.report import exit_code, rows_json, verdict_sections
    from cudareduce.compare.request import CompareRequest

    request = _request(
        CompareRequest, "compare", (old, new),
        {"threshold": threshold, "strict": strict, **options},
    )  # fmt: skip
    report = compare_runs(request, load_registry())
    text = rows_json(report.rows)
    return Result(
        items=tuple(report.rows), exit_code=exit_code(report, request.judging), json=text,
        sections=tuple(verdict_sections(report, everything=True)), rows=tuple(loads(text)),
    )  # fmt: skip


def plot(
    *results: str | Path | Result[Record],
    kind: str | None = None,
    only: str | Sequence[str] = (),
    n: int | Sequence[int] = (),
) -> Picture:
    """Draw charts of runs, stored or returned by `bench`, like `cudareduce plot`.

    `kind` is by default the one that fits; `only` and `n` select kernels and sizes. Raises
    UsageError if nothing is drawn.
    """
    from cudareduce.report.plot.figure import KINDS
    from cudareduce.report.plot.kinds import figures

    if kind not in (None, *KINDS):
        raise UsageError(f"{kind!r} is not a kind of chart: use one of {', '.join(KINDS)}")
    names = [only] if isinstance(only, str) else only
    sizes = [n] if isinstance(n, int) else n
    return Picture(tuple(figures([_run(result) for result in results], kind, names, sizes)))


def _run(result: str | Path | Result[Record]) -> Run:
    from cudareduce.results.store import load as load_run
    from cudareduce.results.store import run_of

    if isinstance(result, Result):
        return run_of(Path("the result"), loads(result.json))
    return load_run(Path(result))


def _of_run(run: Run, tables: Sequence[Section], exit_code: int) -> Result[Record]:
    from cudareduce.results.store import to_json

    return Result(
        items=run.records, exit_code=exit_code, sections=tuple(tables), json=to_json(run),
        rows=tuple(asdict(record) for record in run.records),
    )  # fmt: skip


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the caller's script from multiprocessing, whose workers would run it again unless it is
    guarded by `if __name__ == "__main__"`."""
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
    """The request that the command line makes of the same options. Raises UsageError for an invalid
    value, and TypeError for an unknown option."""
    import click

    from cudareduce.cli.main import cli
    from cudareduce.cli.request import make_request

    parser = cli.commands[command]
    known = {
        option.removeprefix("--").replace("-", "_"): param
        for param in parser.params
        if isinstance(param, click.Option) and param.name not in (*_PRINTED, *_COMMAND_LINE_ONLY)
        for option in param.opts
    }
    for kernel in kernels:
        if not isinstance(kernel, str | Path):
            kind_name = type(kernel).__name__
            raise TypeError(f"{command}() takes names and paths as arguments, not {kind_name}")
    arguments = list(map(str, kernels))
    silent = {"quiet": True} if "quiet" in known else {}
    for name, value in {**silent, **given}.items():
        if name not in known:
            raise TypeError(f"{command}() has no option {name!r}, only {', '.join(known)}")
        arguments += _typed(known[name], value)
    try:
        with parser.make_context(command, arguments) as ctx:
            typed = {"argv": (command, *arguments)} if "argv" in get_type_hints(kind) else {}
            return make_request(kind, {**ctx.params, **typed}, _COMMAND_LINE_ONLY)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from None


def _typed(option: click.Option, value: Any) -> list[str]:
    """An option with its value as command-line arguments."""
    name = option.opts[-1]
    if value is None or value is False:
        return []
    if option.is_flag:
        return [name]
    is_list = isinstance(value, Iterable) and not isinstance(value, str)
    words = list(map(str, value)) if is_list else [str(value)]
    if not words and option.default == ():
        return []
    return [f"{name}={word}" for word in (words if option.multiple else [",".join(words)])]
