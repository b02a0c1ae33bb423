"""The command `reveal`: in which order kernels and libraries add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.external.options import FileOptions
from cudareduce.library.header import SOURCES
from cudareduce.library.registry import load_registry
from cudareduce.progress import say
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.publish import Outputs, publish
from cudareduce.results.provenance import tool
from cudareduce.reveal import compare, session
from cudareduce.reveal.calls import Shapes, chosen
from cudareduce.reveal.orders import Order, Table, load, sections, to_json
from cudareduce.reveal.session import RevealResult, Where

#: Default type and number of elements.
_DTYPE, _SIZE = ("float32",), (1024,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealRequest:
    """The options of `reveal`. `compare` are two tables or names of calls, instead of `kernels`. If
    sizes are None, defaults are used, or the sizes of the table that is compared with."""

    where: Where
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
    def shaped(self) -> bool:
        """True if any shape option is given."""
        asked = self.n, self.rows, self.dtype, self.acc, self.block, self.items
        return any(one is not None for one in asked)


def reveal(request: RevealRequest) -> int:
    """Reveal and print summation orders, or compare two; returns the exit code. Raises UsageError,
    and EnvironmentProblem if no call can run on this machine."""
    if request.compare is not None:
        return _compared(request, *request.compare)
    found = revealed(request)
    table = Table(tool=tool(request.argv), device=found.device, orders=found.orders)
    publish(request.outputs, sections(found.orders, found.device), {"json": lambda: to_json(table)})
    say("interrupted: the missing calls were not tried" * found.interrupted, request.where.quiet)
    return exit_code(found)


def revealed(request: RevealRequest) -> RevealResult:
    """The summation orders of the requested kernels and libraries; raises as `reveal` does."""
    if not request.kernels:
        raise UsageError(
            "name a kernel, a library, all or peers, as in cudareduce reveal reduce_v7_shuffle, or "
            "give --compare two of them"
        )
    request.outputs.check(*_files(request.kernels))
    found = _found(request, request.kernels)
    found.require_any()
    return found


def exit_code(found: RevealResult) -> int:
    """130 after Ctrl-C, else the exit code of the worst outcome."""
    codes = {3 for order in found.orders if order.outcome == "wrong"}
    codes |= {2 for order in found.orders if order.cause == "unbuilt"}
    codes |= {4 for order in found.orders if order.cause == "time"}
    return 130 if found.interrupted else worst_exit_code(codes)


def _compared(request: RevealRequest, *names: str) -> int:
    """Compare two sides, each a table or a name to reveal now."""
    if request.kernels:
        raise UsageError("--compare excludes other names: give only one of them")
    request.outputs.check(*_files(names))
    stored = {name: load(Path(name)) for name in names if _is_table(name)}
    table = next(iter(stored.values()), None)
    old, new = (stored.get(name) or _revealed(request, name, table) for name in names)
    pairs = compare.compared(old.orders, new.orders, files=len(stored) == len(set(names)))
    devices = f" ({old.device} and {new.device})" if old.device != new.device else ""
    told = compare.section(pairs, f"summation order: {names[0]} and {names[1]}{devices}")
    publish(request.outputs, [told], {"json": lambda: compare.to_json(pairs)})
    return compare.exit_code(pairs)


def _revealed(request: RevealRequest, name: str, table: Table | None) -> RevealResult:
    """Reveal one side for the calls in the table of the other side. Raises KeyboardInterrupt if it
    is interrupted, since a part cannot be compared."""
    found = _found(request, (name,), table)
    found.require_any()
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def _is_table(name: str) -> bool:
    return name.endswith(".json")


def _files(names: Sequence[str]) -> list[Path]:
    """The names that are files, which outputs must not overwrite."""
    return [Path(name) for name in names if name.endswith((*SOURCES, ".json"))]


def _found(
    request: RevealRequest, names: Sequence[str], table: Table | None = None
) -> RevealResult:
    problems = _problems(table) if table is not None and not request.shaped else [request.shapes]
    shapes = [(n, one.rows) for one in problems for n in one.sizes]
    files = request.files.with_shape(request.block, request.items)
    what = chosen(names, load_registry(request.folders), files, request.where.quiet, shapes)
    wanted = [(what, request.shapes)]
    if table is not None and not request.shaped:
        held = [(what.only(order.kernel), _again(order, launched=True)) for order in table.orders]
        held = [(some, shapes) for some, shapes in held if some.kernels or some.peers]
        # If the table has none of these calls, use its problems.
        wanted = held or [(what, shapes) for shapes in _problems(table)]
    return session.found(wanted, request.where)


def _problems(table: Table) -> list[Shapes]:
    each = {order.problem: order for order in table.orders}
    return [_again(order, launched=False) for order in each.values()]


def _again(order: Order, *, launched: bool) -> Shapes:
    """The shapes of a row of a table, with its launch configuration if `launched`."""
    return Shapes(
        reductions=(reduction_of("sum", order.dtype, order.acc),), sizes=(order.n,),
        rows=order.rows, block=order.block if launched else None,
        items=order.items if launched else None,
    )  # fmt: skip
