"""Tables of summation orders: stored as JSON, printed, and drawn as trees."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from cudareduce.analysis.reveal.calls import KernelTarget, LibraryTarget, Refusal
from cudareduce.analysis.reveal.probing import EXACT_UP_TO, Outcome, ProbeResult
from cudareduce.errors import UsageError
from cudareduce.launch.plan import Problem
from cudareduce.launch.tree import Tree
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import DASH, error_text, short_size
from cudareduce.report.section import Section
from cudareduce.results.store import Unfit, is_missing, parse, read_json
from cudareduce.verify.verdict import Cause

SCHEMA, KIND = 1, "orders"
#: Separator of the two columns of a picture.
BETWEEN = " = "
#: Limit of counts in files.
_MOST = 2**63
_REMEDY = "make it with cudareduce reveal --json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The summation order of one call on `rows` rows of `n` elements.

    `hashes` maps the number of leaves to the hash of a tree: of all elements, or of a sample.
    `depth` is the number of additions on the longest path; for a sample it is a lower bound.
    `bound` is the error bound relative to the sum of magnitudes. `version` and `called` are set for
    libraries.
    """

    kernel: str
    dtype: str
    acc: str
    n: int
    rows: int
    outcome: str
    block: int | None = None
    items: int | None = None
    reason: str = ""
    cause: str | None = None
    hashes: dict[str, str] = field(default_factory=dict)
    depth: int | None = None
    exact: bool = False
    bound: float | None = None
    adds_in: str | None = None
    probes: int = 0
    called: str | None = None
    version: str | None = None
    picture: tuple[str, ...] = ()

    @property
    def hash(self) -> str | None:
        """The hash of the largest tree."""
        return self.hashes[max(self.hashes, key=int)] if self.hashes else None

    @property
    def problem(self) -> tuple[str, str, int, int]:
        """Types and shape."""
        return self.dtype, self.acc, self.n, self.rows

    @property
    def key(self) -> tuple[object, ...]:
        """Fields that identify the row."""
        return self.kernel, *self.problem, self.block, self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Summation orders on one device, with the version of the tool."""

    tool: Mapping[str, Any]
    device: str
    orders: tuple[Order, ...]


def to_json(table: Table) -> str:
    """The table as JSON with one order per line, so that a diff shows which orders changed."""
    head = {"kind": KIND, "schema": SCHEMA, "tool": dict(table.tool), "device": table.device}
    rows = ",\n".join(f"  {json.dumps(asdict(order), allow_nan=False)}" for order in table.orders)
    return f'{json.dumps(head, indent=1)[:-2]},\n "orders": [\n{rows}\n ]\n}}\n'


def load(path: Path) -> Table:
    """Read a table. Raises UsageError if it is missing, truncated or another kind of file."""
    if is_missing(path):
        raise UsageError(f"there is no {path}: {_REMEDY}")
    data = read_json(path)
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise UsageError(f"{path} is not a table of summation orders: {_REMEDY}")
    if data.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} has schema {data.get('schema')!r:.20}, this version reads {SCHEMA}: {_REMEDY}"
        )
    place = ""
    try:
        for name, kind in {"tool": dict, "device": str, "orders": list}.items():
            if not isinstance(data.get(name), kind):
                raise Unfit(f"{name} is missing or has the wrong type")
        if not data["orders"]:
            raise Unfit("it has no row")
        orders = []
        for number, values in enumerate(data["orders"], 1):
            place = f"row {number}: "
            orders.append(order := parse(Order, values))
            _check(order)
    except Unfit as error:
        raise UsageError(
            f"{path} is not a complete table of summation orders: {place}{error}; {_REMEDY}"
        ) from None
    return Table(tool=data["tool"], device=data["device"], orders=tuple(orders))


def _check(order: Order) -> None:
    """Raise Unfit if a field has a value that no summation order has."""
    known = {"dtype": DTYPES, "acc": DTYPES, "outcome": get_args(Outcome),
             "cause": (None, *get_args(Cause))}  # fmt: skip
    for name, words in known.items():
        if getattr(order, name) not in words:
            raise Unfit(f"{name} is unknown")
    counts = (order.n, order.rows, order.probes, order.block, order.items, order.depth)
    if not all(count is None or 0 <= count < _MOST for count in counts):
        raise Unfit("a count is negative, or too large")
    for size, tree in order.hashes.items():
        if not (size.isdecimal() and len(size) < len(str(_MOST)) and isinstance(tree, str)):
            raise Unfit("hashes are not texts by numbers of elements")


#: Limit for the lines of a picture: an irregular tree has as many kinds of sums as elements.
_MOST_LINES = 24
#: Characters of the right column, so that a line fits 80 columns.
_WIDTH = 60
_TOGETHER, _IN_TURN = "together", "one after the other"
_INDENT = "  "


def picture(tree: Tree) -> list[tuple[str, str]]:
    """The lines of a picture: the size of a sum, indented below the sum that contains it, and its
    parts. For a sample: the sums on the path of the first element, and the elements added there."""
    lines = list(_Drawing(tree).lines() if tree.exact else _path_of_first_element(tree))
    if len(lines) > _MOST_LINES:
        left = len(lines) - _MOST_LINES + 1
        return [*lines[: _MOST_LINES - 1], ("...", f"and {left} more lines")]
    return lines


class _Drawing:
    """Draws a tree, with each kind of sum once. Two sums are of the same kind if they differ only
    by an index offset."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self._count = tree, len(tree.leaves)
        kinds: dict[object, int] = {}
        self._kinds = [0] * self._count
        for number, join in enumerate(tree.joins, self._count):
            first = tree.lowest[number]
            shape = tuple((tree.lowest[part] - first, self._kinds[part]) for part in join.parts)
            self._kinds.append(kinds.setdefault(shape, len(kinds) + 1))

    def lines(self) -> Iterator[tuple[str, str]]:
        """The lines: each kind of sum below the first sum that contains it."""
        drawn: set[int] = set()
        waiting = [(self._count + len(self._tree.joins) - 1, 0)]
        while waiting:
            number, level = waiting.pop()
            if self._kinds[number] in drawn or number < self._count:
                continue
            drawn.add(self._kinds[number])
            how, parts = self._describe(number)
            yield f"{_INDENT * level}{self._size(number)}", how
            waiting += [(part, level + 1) for part in reversed(parts)]

    def _size(self, number: int) -> int:
        return 1 if number < self._count else self._tree.joins[number - self._count].size

    def _parts(self, number: int) -> tuple[int, ...]:
        return self._tree.joins[number - self._count].parts

    def _describe(self, number: int) -> tuple[str, Sequence[int]]:
        """The text that describes a sum, and the parts to draw below it."""
        halves, (head, chain) = self._halving_steps(number), self._chain(number)
        if len(chain) > 2:
            before = "" if head is None else f"{self._part_text(head)}, then "
            text = f"{before}{self._repeated_part(chain, _IN_TURN, len(before))}"
            return text, chain[:1] if head is None else (head, chain[0])
        if halves:
            bottom, steps = halves
            what = f"{2 ** len(steps)} x {self._size(bottom)} in halves, "
            return f"{what}{_numbers(steps, len(what))} apart", (bottom,)
        parts = self._parts(number)
        if len(parts) > 2 and len({self._kinds[part] for part in parts}) == 1:
            return self._repeated_part(parts, _TOGETHER), parts[:1]
        how = f", {_TOGETHER}" if len(parts) > 2 else ""
        operands = _texts([self._part_text(part) for part in parts], " + ", len(how))
        return f"{operands}{how}", parts

    def _part_text(self, number: int) -> str:
        size, first = self._size(number), self._first(number)
        return f"{size} from {first} on" if size > 1 else f"element {first}"

    def _repeated_part(self, parts: Sequence[int], how: str, taken: int = 0) -> str:
        """The text for sums of the same kind: number, size and first elements. The first two sums
        may be swapped."""
        size, firsts = self._size(parts[0]), [self._first(part) for part in parts]
        what = f"{len(parts)} x {size} {how}"
        for order in (firsts, [firsts[1], firsts[0], *firsts[2:]]):
            steps = {second - first for first, second in pairwise(order)}
            if len(steps) == 1:
                step = steps.pop()
                return f"{what}, {abs(step)} apart{', the last first' * (step < 0)}"
        if size == 1:
            return f"{what}: {_numbers(firsts, taken + len(what) + 2)}"
        return f"{what}, from {_numbers(firsts, taken + len(what) + 10)} on"

    def _first(self, number: int) -> int:
        return self._tree.lowest[number]

    def _halving_steps(self, number: int) -> tuple[int, list[int]] | None:
        """For a sum of two halves of the same kind: the innermost part, and the distance between
        the halves at each level from the innermost on. Else None."""
        steps = []
        while number >= self._count:
            parts = self._parts(number)
            if len(parts) != 2 or self._kinds[parts[0]] != self._kinds[parts[1]]:
                break
            steps.append(self._first(parts[1]) - self._first(parts[0]))
            number = parts[0]
        return (number, steps[::-1]) if steps else None

    def _chain(self, number: int) -> tuple[int | None, list[int]]:
        """Sums of the same kind that are added one after the other, and the first operand if it is
        of another kind."""
        chain: list[int] = []
        kind = None
        while number >= self._count and len(self._parts(number)) == 2:
            small, large = sorted(self._parts(number), key=self._size)
            kind = self._kinds[small] if kind is None else kind
            if self._kinds[small] != kind:
                break
            chain.append(small)
            number = large
            if self._kinds[number] == kind:
                break
        chain.reverse()
        if self._kinds[number] != kind:
            return number, chain
        chain.insert(0, number)
        return None, [*sorted(chain[:2], key=self._first), *chain[2:]]  # either may be the first


def _path_of_first_element(tree: Tree) -> Iterator[tuple[str, str]]:
    at, count = 0, len(tree.leaves)
    for number, join in enumerate(tree.joins, count):
        if at in join.parts:
            added = tree.sets[number] & ~tree.sets[at]
            leaves = [leaf for k, leaf in enumerate(tree.leaves) if added >> k & 1]
            yield str(join.size), _numbers(leaves)
            at = number


def _numbers(numbers: Sequence[int], taken: int = 0) -> str:
    return _texts(list(map(str, numbers)), " ", taken)


def _texts(texts: Sequence[str], between: str, taken: int = 0) -> str:
    """Texts joined within the width left after `taken` characters; too many are abbreviated to the
    first ones and the last."""
    whole = between.join(texts)
    if len(texts) < 3 or taken + len(whole) <= _WIDTH:
        return whole
    room, first = _WIDTH - taken - len(between.join(["...", texts[-1]])), [texts[0]]
    while len(between.join([*first, texts[len(first)]])) + len(between) <= room:
        first.append(texts[len(first)])
    return between.join([*first, "...", texts[-1]])


#: With more pictures than this only the table is shown.
_PICTURES = 4
_OUTCOME_TEXTS = {"fixed": "fixed", "varies": "varies", "other": "not only +", "wrong": "WRONG"}


def order_of(call: KernelTarget | LibraryTarget, found: ProbeResult) -> Order:
    """The row of a target that was probed."""
    tree, case = found.tree, call.case if isinstance(call, KernelTarget) else None
    reasons = [found.reason, *_front_matter_differences(call, found)]
    return replace(
        _plain_row(call.name, call.problem, found.outcome, "; ".join(filter(None, reasons))),
        block=case.block if case else None, items=case.items if case else None,
        hashes={str(len(tree.leaves)): tree.hash for tree in found.trees},
        depth=tree.depth if tree else None, exact=bool(tree and tree.exact), bound=found.bound,
        adds_in=found.adds_in, probes=found.probes, called=found.called, version=found.version,
        picture=tuple(BETWEEN.join(line) for line in picture(tree)) if tree else (),
        cause=found.cause,
    )  # fmt: skip


def refusal_row(refusal: Refusal) -> Order:
    """The row of a target that does not support the problem."""
    row = _plain_row(refusal.name, refusal.problem, "skip", refusal.reason)
    return replace(row, cause=refusal.cause)


def _plain_row(name: str, problem: Problem, outcome: str, reason: str) -> Order:
    reduction = problem.reduction
    return Order(
        kernel=name, dtype=reduction.dtype.name, acc=reduction.acc.name, n=problem.n,
        rows=problem.rows, outcome=outcome, reason=reason,
    )  # fmt: skip


def _front_matter_differences(
    call: KernelTarget | LibraryTarget, found: ProbeResult
) -> Iterator[str]:
    """Descriptions of differences between the revealed order and the kernel's front matter."""
    tree = found.tree
    if not isinstance(call, KernelTarget) or tree is None or found.outcome == "varies":
        return
    if call.plan.folds_on_host:
        yield "partial results are summed on the host in a wider type"
    elif tree.depth > call.plan.depth:
        yield f"deeper than its front matter says: {tree.depth} additions, not {call.plan.depth}"
    if tree.exact and not tree.refines(call.plan.tree):
        yield "not in the order of its front matter"
    if call.case.kernel.order == "kept" and tree.exact and not tree.keeps_order:
        yield "operands are swapped, contrary to its front matter"
    if call.case.kernel.finish == "atomic" and any(step.grid > 2 for step in call.plan.passes):
        yield "the order was the same each time but is not guaranteed: it uses atomics"


def sections(orders: Sequence[Order], device: str) -> list[Section]:
    """The table, then the pictures."""
    header = ("kernel", "n", "dtype", "order", "depth", "bound", "hash")
    rows = tuple(
        (order.kernel, _size(order), order.dtype, _OUTCOME_TEXTS[order.outcome], _depth(order),
         error_text(order.bound), order.hash or DASH)
        for order in orders if order.outcome != "skip"
    )  # fmt: skip
    notes = tuple(dict.fromkeys(_notes(orders)))
    table = Section(f"summation order, {device}", header, rows, notes, texts=1)
    drawn = [order for order in orders if order.picture]
    pictures = [_picture(order) for order in drawn] if len(drawn) <= _PICTURES else []
    return [table, *pictures]


def _size(order: Order) -> str:
    rows = f" x {order.rows} rows" if order.rows != 1 else ""
    return f"{short_size(order.n)}{rows}"


def _depth(order: Order) -> str:
    if order.depth is None:
        return DASH
    return str(order.depth) if order.exact else f">= {order.depth}"


def _notes(orders: Sequence[Order]) -> Iterator[str]:
    skipped: dict[str, list[str]] = {}
    for order in orders:
        where = f"{order.kernel}, n = {order.n}"
        if order.outcome == "skip":
            skipped.setdefault(order.reason, []).append(where)
        elif order.reason:
            yield f"{where}: {'WRONG: ' if order.outcome == 'wrong' else ''}{order.reason}"
        if order.called and order.outcome != "skip":
            yield f"{order.kernel}: {order.version} {order.called}"
    for reason, places in skipped.items():
        if len(places) == 1:
            yield f"{places[0]}: skipped, {reason}"
        else:
            yield f"skipped, {reason} ({len(places)} calls): {'; '.join(dict.fromkeys(places))}"
    bounded = [order for order in orders if order.bound]
    if bounded:
        wider = dict.fromkeys(
            f"{order.dtype} added in {order.adds_in}"
            for order in bounded if order.adds_in != order.dtype
        )  # fmt: skip
        yield "; ".join(["bound: gamma_depth, of the sum of magnitudes", *wider])
    if any(order.hashes and not order.exact for order in orders):
        yield f"depth >=: of a sample; the whole tree is recovered up to n = {EXACT_UP_TO}"


def _picture(order: Order) -> Section:
    what = f"{order.kernel}, {_size(order)} {order.dtype}, {counted(order.probes, 'probe')}"
    lines = [line.partition(BETWEEN) for line in order.picture]
    rows = tuple((left, right) for left, _, right in lines)
    header = ("sum of", "made of") if order.exact else ("in a sum of", "element 0 meets")
    return Section(what, header, rows, (), texts=2)
