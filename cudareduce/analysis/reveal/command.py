"""The command `reveal`: find the summation order of kernels and libraries, or compare two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudareduce.analysis.reveal import compare, session
from cudareduce.analysis.reveal.calls import Shapes, select_targets
from cudareduce.analysis.reveal.orders import Order, Table, load, sections, to_json
from cudareduce.analysis.reveal.session import RevealResult, RunOptions
from cudareduce.catalog.front_matter import SOURCES
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.external.options import FileOptions
from cudareduce.progress import say
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.publish import Outputs, publish
from cudareduce.results.provenance import tool

#: Default type and number of elements.
_DTYPE, _SIZE = ("float32",), (1024,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealRequest:
    """The options of `reveal`. `compare` are two tables or names, instead of `kernels`. Sizes that
    are None have defaults; in a comparison with a table they are the table's."""

    where: RunOptions
    outputs: Outputs
    kernels: tuple[str, ...] = ()
    compare: tuple[str, str] | None = None
    folders: tuple[Path, ...] = ()
    files: FileOptions = field(default_factory=FileOptions)
    n: tuple[int, ...] | None = None
    rows: int | None = None
    op: str = "sum"
    dtype: tuple[str, ...] | None = None
    acc: str | None = None
    block: int | None = None
    items: int | None = None
    argv: tuple[str, ...] = ()

    @property
    def shapes(self) -> Shapes:
        """The requested shapes."""
        reductions = (reduction_of(self.op, name, self.acc) for name in self.dtype or _DTYPE)
        return Shapes(
            reductions=tuple(reductions), sizes=self.n or _SIZE, rows=self.rows or 1,
            block=self.block, items=self.items,
        )  # fmt: skip

    @property
    def has_shape_options(self) -> bool:
        """True if any shape option is given."""
        options = self.n, self.rows, self.dtype, self.acc, self.block, self.items
        return any(option is not None for option in options)


def reveal(request: RevealRequest) -> int:
    """Reveal and print summation orders, or compare two; returns the exit code. Raises UsageError,
    and EnvironmentProblem if no call can run on this machine."""
    if request.compare is not None:
        return _compare_sides(request, *request.compare)
    result = reveal_names(request)
    table = Table(tool=tool(request.argv), device=result.device, orders=result.orders)
    publish(
        request.outputs, sections(result.orders, result.device), {"json": lambda: to_json(table)}
    )
    say("interrupted: the missing calls were not tried" * result.interrupted, request.where.quiet)
    return exit_code(result)


def reveal_names(request: RevealRequest) -> RevealResult:
    """The summation orders of the requested kernels and libraries; raises as `reveal` does."""
    if not request.kernels:
        raise UsageError(
            "name a kernel, a library, all or peers, as in cudareduce reveal reduce_v7_shuffle, or "
            "give --compare two of them"
        )
    request.outputs.check(*_files(request.kernels))
    result = _reveal_selection(request, request.kernels)
    result.require_any()
    return result


def exit_code(result: RevealResult) -> int:
    """130 after Ctrl-C, else the exit code of the worst outcome."""
    codes = {3 for order in result.orders if order.outcome == "wrong"}
    codes |= {2 for order in result.orders if order.cause == "unbuilt"}
    codes |= {4 for order in result.orders if order.cause == "time"}
    return 130 if result.interrupted else worst_exit_code(codes)


def _compare_sides(request: RevealRequest, *names: str) -> int:
    """Compare two sides: each is a stored table, or a name to reveal now."""
    if request.kernels:
        raise UsageError("--compare excludes other names: give only one of them")
    request.outputs.check(*_files(names))
    stored = {name: load(Path(name)) for name in names if _is_table(name)}
    table = next(iter(stored.values()), None)
    old, new = (stored.get(name) or _reveal_side(request, name, table) for name in names)
    pairs = compare.pair_orders(old.orders, new.orders, files=len(stored) == len(set(names)))
    devices = f" ({old.device} and {new.device})" if old.device != new.device else ""
    section = compare.section(pairs, f"summation order: {names[0]} and {names[1]}{devices}")
    publish(request.outputs, [section], {"json": lambda: compare.to_json(pairs)})
    return compare.exit_code(pairs)


def _reveal_side(request: RevealRequest, name: str, table: Table | None) -> RevealResult:
    """Reveal one side on the problems of the other side's table. Raises KeyboardInterrupt after
    Ctrl-C, since partial results are not comparable."""
    result = _reveal_selection(request, (name,), table)
    result.require_any()
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _is_table(name: str) -> bool:
    return name.endswith(".json")


def _files(names: Sequence[str]) -> list[Path]:
    """The names that are files, which outputs must not overwrite."""
    return [Path(name) for name in names if name.endswith((*SOURCES, ".json"))]


def _reveal_selection(
    request: RevealRequest, names: Sequence[str], table: Table | None = None
) -> RevealResult:
    problems = (
        _shapes_of_table(table)
        if table is not None and not request.has_shape_options
        else [request.shapes]
    )
    shapes = [(n, problem.rows) for problem in problems for n in problem.sizes]
    files = request.files.with_shape(request.block, request.items)
    what = select_targets(names, load_registry(request.folders), files, request.where.quiet, shapes)
    targets = [(what, request.shapes)]
    if table is not None and not request.has_shape_options:
        rows = [
            (what.only(order.kernel), _shapes_of_row(order, launched=True))
            for order in table.orders
        ]
        rows = [(row, shapes) for row, shapes in rows if row.kernels or row.libraries]
        # if the table has none of these targets, use its problems
        targets = rows or [(what, shapes) for shapes in _shapes_of_table(table)]
    return session.reveal_all(targets, request.where)


def _shapes_of_table(table: Table) -> list[Shapes]:
    each = {order.problem: order for order in table.orders}
    return [_shapes_of_row(order, launched=False) for order in each.values()]


def _shapes_of_row(order: Order, *, launched: bool) -> Shapes:
    """The shape of a row of a table; with block and items per thread if `launched`."""
    return Shapes(
        reductions=(reduction_of("sum", order.dtype, order.acc),), sizes=(order.n,),
        rows=order.rows, block=order.block if launched else None,
        items=order.items if launched else None,
    )  # fmt: skip
