"""The inputs that verify a plan: by shape and care, made when asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Plan
from cudareduce.library.condition import ANY_INPUT, Condition, Positive
from cudareduce.problem.inputs import Array, make_all, without_nan
from cudareduce.problem.nets import of_ends, patterns_for
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import Reference, reference, with_elements
from cudareduce.verify.shapes import Care
from cudareduce.verify.verdict import Effort

#: The elements of each input.
Arrays = tuple[Array, ...]

#: Up to this size every pattern and every schedule is tried, above it on the CPU one of each.
SMALL = 2**20
#: Up to this size of one turn of a grid every kind of value is tried in later turns too.
_IN_TURNS_UP_TO = 2**15
#: Up to this size the input is also given off its natural alignment, up to the other in every way.
_MISALIGNED_UP_TO, _IN_EVERY_WAY_UP_TO = 65537, 1025
#: Elements off it, as far as a load of 16 bytes can tell them apart.
_OFFSETS = (1, 2, 3, 5, 7)
#: Launches on one input whose answers are compared bit by bit, where rounding can show an order.
REPEATS = 10
#: The device time that these may take where they are timed; at least so many are made.
_BUDGET_US, _LEAST = 100_000.0, 3
#: Bytes of inputs that are kept for the next kernel.
_KEPT_BYTES = 2**26


def repeats(cost_us: float) -> int:
    """How many launches of this duration are compared bit by bit."""
    return max(_LEAST, min(REPEATS, int(_BUDGET_US / max(cost_us, 1.0))))


@dataclass(frozen=True, slots=True)
class Input:
    """One input to verify with; it starts `offset` elements off its natural alignment, its elements
    are moved to above 0 if it is `positive`, its answer `drops_nan` or not, and may be the place of
    `any` of equal extremes."""

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
        """What one launch on it adds to what a verdict rests on, but for the launch."""
        return Effort(frozenset([(self.n, self.rows)]), frozenset([self.pattern.partition(":")[0]]))

    def __str__(self) -> str:
        rows = f" x {self.rows} rows" if self.rows != 1 else ""
        off = f", misaligned by {self.offset}" if self.offset else ""
        return f"n = {self.n}{rows}, {self.pattern}{off}"


class Inputs:
    """Inputs with their right answers, made when asked for; the last ones are kept, since the next
    kernel is likely to be given the same."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Input, Reduction], tuple[Arrays, Reference]] = {}
        self._held = 0

    def of(self, given: Input, reduction: Reduction) -> tuple[Arrays, Reference]:
        """The elements of an input, of both where a reduction has two, and what it must give."""
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
            if reduction.map and reduction.map.one_row:  # what is behind it is not to be read
                data = data[0], data[1][: given.n]
            found = data, ref
            self._held += _nbytes(data)
        self._kept[key] = found
        return found

    def _make_room(self, nbytes: int) -> None:
        """Let the oldest go, before another is made: two large ones need not fit into memory."""
        while self._kept and self._held + nbytes > _KEPT_BYTES:
            self._held -= _nbytes(self._kept.pop(next(iter(self._kept)))[0])


def _nbytes(arrays: Arrays) -> int:
    return sum(one.nbytes for one in arrays)


def inputs_for(
    reduction: Reduction, shape: Shape, tiles: Iterable[int], care: Care = "full",
    asks: Condition = ANY_INPUT,
) -> list[tuple[str, int]]:  # fmt: skip
    """Pattern and misalignment of each input that verifies a shape with so much care; with the
    least it is the first that decides. `tiles` are the elements that a block of each case takes,
    and `asks` what holds of every input."""
    n, elements = shape[0], shape[0] * shape[1]
    patterns: dict[str, None] = {}
    for tile in sorted(set(tiles)):
        patterns |= dict.fromkeys(patterns_for(reduction, n, tile if n <= SMALL else n or 1))
    two = asks.nan != "propagate" and reduction.inputs > 1  # inf - inf would be another NaN
    names = [name for name in patterns if _fits(name, n, asks) and not (two and _is_infinite(name))]
    if reduction.op.expression and care != "full":
        names = names[-1:]  # of which least is rounded: how much may be is the user's guess
    if care == "least":
        return [(name, 0) for name in names]
    offsets = [k for k in _OFFSETS if k * reduction.dtype.size < 16]
    if care == "some":
        names = names[:2]
    if care == "some" or elements > _IN_EVERY_WAY_UP_TO:
        offsets = [offsets[n % len(offsets)]]
    inputs = [(name, 0) for name in names]
    if 0 < elements <= _MISALIGNED_UP_TO and not asks.aligned:
        inputs += [(names[0], offset) for offset in offsets]
        once = offsets[n % len(offsets)]
        inputs += [(end, once) for end in of_ends(reduction, n, once) if _fits(end, n, asks)]
    return inputs


def _fits(pattern: str, n: int, asks: Condition) -> bool:
    """Whether `n` elements of a pattern are what a kernel asks for; of nothing but NaN that are
    dropped there is no answer."""
    name, _, places = pattern.partition(":")
    if name in ("nan", "-nan"):
        return asks.nan == "propagate" or (asks.nan == "drop" and n > 1)
    if asks.positive and name in ("-inf", "finite"):
        return False
    neutral = name == "neutral" and not asks.positive  # of positive numbers it is the least
    if asks.bounded and (neutral or name.endswith("inf")):
        return False
    infinite = neutral or (name.endswith("inf") and places.count(",") + 1 >= n)
    return not (asks.finite and infinite)


def _is_infinite(pattern: str) -> bool:
    """Whether elements of a pattern may be infinite."""
    return pattern == "neutral" or pattern.partition(":")[0].endswith("inf")


def tiles_of(plan: Plan) -> list[int]:
    """What a block of a plan takes at a time and, if that is little, what all of them take."""
    tile = plan.block * plan.items
    turn = tile * plan.passes[0].grid if plan.passes else tile
    grows = plan.kernel.grid not in ("fill", "per_sm", "fixed", "fill_by_row")
    return [tile] if grows or turn > _IN_TURNS_UP_TO else [tile, turn]


def work(plan: Plan, care: Care, only: str | None) -> int:
    """Elements that a verification of one shape has reduced, over all inputs and ways; of rows at
    least as many as a block has threads."""
    problem = plan.problem
    shape = problem.n, problem.rows
    if care == "far":
        return 0
    once = max(problem.elements, problem.rows * plan.block * (problem.rows > 1))
    if care == "least":
        return once
    asks = plan.kernel.asks
    count = 1 if only else len(inputs_for(problem.reduction, shape, tiles_of(plan), care, asks))
    return once * count * REPEATS
