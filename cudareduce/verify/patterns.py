"""Input patterns that verify a kernel, by shape and verification level, made when needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from cudareduce.catalog.condition import ANY_INPUT, Condition, Positive
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Plan
from cudareduce.reduction.inputs import Array, make_all, without_nan
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.patterns import end_patterns, needs_schedules, patterns_for
from cudareduce.reduction.reference import Reference, reference, with_elements
from cudareduce.verify.test_sets import Level
from cudareduce.verify.verdict import Effort

#: The elements of each input array.
Arrays = tuple[Array, ...]

#: Up to this size every pattern and schedule is tried; above it one of each on the CPU.
SMALL = 2**20
#: Up to this size every input is tried under every schedule of the emulator; above it, one input.
EVERY_SCHEDULE_UP_TO = 2**17
#: Up to this size of one iteration of the grid, patterns also cover later iterations.
_IN_TURNS_UP_TO = 2**15
#: Up to these sizes the input is also misaligned: by one offset, by every offset.
_MISALIGNED_UP_TO, _IN_EVERY_WAY_UP_TO = 65537, 1025
#: Bytes of the widest load.
_LOAD_BYTES = 16
#: Launches on one input whose results are compared bit by bit, to detect a varying order.
REPEATS = 10
#: Device time for these launches when the kernel is timed, and their least number.
_BUDGET_US, _LEAST = 100_000.0, 3
#: Bytes of inputs that are cached for the next kernel, without the largest one.
_KEPT_BYTES = 2**26


def repeats(cost_us: float) -> int:
    """Number of launches of this duration that are compared bit by bit."""
    return max(_LEAST, min(REPEATS, int(_BUDGET_US / max(cost_us, 1.0))))


@dataclass(frozen=True, slots=True)
class Input:
    """One input to verify with, misaligned by `offset` elements. Its elements are shifted above 0
    if it is `positive`; the expected result `drops_nan`, and may be the index of `any` of several
    equal extrema."""

    pattern: str
    n: int
    rows: int = 1
    seed: int = 0
    offset: int = 0
    positive: Positive = ""
    drops_nan: bool = False
    any: bool = False

    @property
    def elements(self) -> int:
        """Elements of the whole input."""
        return self.n * self.rows

    @property
    def effort(self) -> Effort:
        """The coverage of one launch on this input, without the launch itself."""
        return Effort(frozenset([(self.n, self.rows)]), frozenset([self.pattern.partition(":")[0]]))

    def __str__(self) -> str:
        rows = f" x {self.rows} rows" if self.rows != 1 else ""
        off = f", misaligned by {self.offset}" if self.offset else ""
        return f"n = {self.n}{rows}, {self.pattern}{off}"


class Inputs:
    """Cache of inputs with their expected results: the next kernel is likely to need the same."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Input, Reduction], tuple[Arrays, Reference]] = {}
        self._held = 0

    def of(self, given: Input, reduction: Reduction) -> tuple[Arrays, Reference]:
        """The arrays of an input, one or two, and the reference result."""
        key = replace(given, offset=0), reduction
        found = self._kept.pop(key, None)
        if found is None:
            self._make_room(given.elements * reduction.dtype.size * reduction.inputs)
            shape = given.n, given.rows
            data = make_all(given.pattern, reduction, *shape, given.seed, given.positive)
            counted = without_nan(data[0], reduction) if given.drops_nan else data[0]
            ref = reference(reduction, counted, given.rows, *data[1:])
            if given.any:
                ref = with_elements(ref, reduction, counted, given.rows)
            if reduction.map and reduction.map.one_row:  # a kernel must not read beyond it
                data = data[0], data[1][: given.n]
            found = data, ref
            self._held += _nbytes(data)
        self._kept[key] = found
        return found

    def _make_room(self, nbytes: int) -> None:
        """Drop the oldest before another is made, all but the largest, which takes longest to make.
        Two that exceed the limit may not fit into memory, so only one of these is kept."""
        largest = max((_nbytes(data) for data, _ in self._kept.values()), default=0)
        spared = largest if nbytes <= _KEPT_BYTES else 0
        for key, (data, _) in list(self._kept.items()):
            size = _nbytes(data)
            if self._held - spared + nbytes <= _KEPT_BYTES:
                return
            if size < largest or not spared:
                self._held -= size
                del self._kept[key]


def _nbytes(arrays: Arrays) -> int:
    return sum(one.nbytes for one in arrays)


def inputs_for(
    reduction: Reduction, shape: Shape, tiles: Iterable[int], level: Level = "full",
    precondition: Condition = ANY_INPUT,
) -> list[tuple[str, int]]:  # fmt: skip
    """Pattern and misalignment of each input that verifies a shape at this level; at the least
    level the first that decides suffices. `tiles` are the elements per block of each case. All
    inputs satisfy the precondition."""
    n, elements = shape[0], shape[0] * shape[1]
    patterns: dict[str, None] = {}
    for tile in sorted(set(tiles)):
        patterns |= dict.fromkeys(patterns_for(reduction, n, tile if n <= SMALL else n or 1))
    two = precondition.nan != "propagate" and reduction.inputs > 1  # inf - inf would make a new NaN
    names = [
        name
        for name in patterns
        if _fits(name, n, precondition) and not (two and _is_infinite(name))
    ]
    if reduction.op.expression and level != "full":
        names = names[-1:]  # the one with the least rounding, since the tolerance is inferred
    if level == "least":
        return [(name, 0) for name in names]
    offsets = list(range(1, _LOAD_BYTES // reduction.dtype.size))
    if level == "some":
        names = names[:2]
    if level == "some" or elements > _IN_EVERY_WAY_UP_TO:
        offsets = [offsets[n % len(offsets)]]
    inputs = [(name, 0) for name in names]
    if 0 < elements <= _MISALIGNED_UP_TO and not precondition.aligned:
        inputs += [(names[0], offset) for offset in offsets]
        once = offsets[n % len(offsets)]
        inputs += [
            (end, once) for end in end_patterns(reduction, n, once) if _fits(end, n, precondition)
        ]
    return inputs


def _fits(pattern: str, n: int, precondition: Condition) -> bool:
    """True if a pattern of `n` elements satisfies the precondition of a kernel. An input of nothing
    but dropped NaN has no result."""
    name, _, places = pattern.partition(":")
    if name in ("nan", "-nan"):
        return precondition.nan == "propagate" or (precondition.nan == "drop" and n > 1)
    if precondition.positive and name in ("-inf", "finite"):
        return False
    neutral = (
        name == "neutral" and not precondition.positive
    )  # the identity may be the least positive number
    if precondition.bounded and (neutral or name.endswith("inf")):
        return False
    infinite = neutral or (name.endswith("inf") and places.count(",") + 1 >= n)
    return not (precondition.finite and infinite)


def _is_infinite(pattern: str) -> bool:
    """True if elements of a pattern may be infinite."""
    return pattern == "neutral" or pattern.partition(":")[0].endswith("inf")


def tiles_of(plan: Plan) -> list[int]:
    """Elements that a block reads per iteration and, if that is few, that the whole grid reads."""
    tile = plan.block * plan.items
    turn = tile * plan.passes[0].grid if plan.passes else tile
    grows = plan.kernel.grid not in ("fill", "per_sm", "fixed", "fill_by_row")
    return [tile] if grows or turn > _IN_TURNS_UP_TO else [tile, turn]


def runs(plan: Plan, level: Level, only: str | None, *, schedules: int) -> int:
    """Runs of a plan that verify one shape on the emulator, over all inputs and schedules."""
    if level == "least":
        return 1
    problem = plan.problem
    shape, precondition = (problem.n, problem.rows), plan.kernel.precondition
    names = [
        name
        for name, _ in inputs_for(problem.reduction, shape, tiles_of(plan), level, precondition)
    ]
    names = [only] if only else names
    if problem.elements > EVERY_SCHEDULE_UP_TO:
        return len(names) + schedules - 1
    return sum(schedules if needs_schedules(name) else 1 for name in names)


def work(plan: Plan, level: Level, only: str | None) -> int:
    """Elements that are reduced to verify one shape, over all inputs and schedules; a row counts as
    at least one block of threads, and a thread of a recorded launch as an element."""
    problem = plan.problem
    shape = problem.n, problem.rows
    if level == "large-index":
        return 0
    once = max(problem.elements, problem.rows * plan.block * (problem.rows > 1))
    launches = plan.recorded.launches if plan.recorded else ()
    once = max(once, sum(prod(one.grid) * prod(one.block) for one in launches))
    if level == "least":
        return once
    precondition = plan.kernel.precondition
    count = (
        1
        if only
        else len(inputs_for(problem.reduction, shape, tiles_of(plan), level, precondition))
    )
    return once * count * REPEATS
