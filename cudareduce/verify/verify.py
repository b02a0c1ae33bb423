"""Whether a kernel is right: bounds from the plan, patterns by operator, sizes where kernels fail.

Never a tolerance by taste, and never relative to the sum alone: a float sum must lie within
gamma_depth * sum|x| of the reference, everything else must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from cudareduce.backend import Backend, KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Prepared, Programs, Shape
from cudareduce.launch.plan import Plan
from cudareduce.problem.inputs import Array, make
from cudareduce.problem.nets import needs_schedules, patterns_for
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import Reference, reference
from cudareduce.verify.verdict import RIGHT, Effort, Verdict, judge, worse

#: Up to this size every pattern and every schedule is tried, above it on the CPU one of each.
SMALL = 2**20
#: Up to this size the input is also given off its natural alignment.
_MISALIGNED_UP_TO = 65537
#: One of these is among the patterns of every operator.
_GUARDED = ("random", "rising", "cancel")
#: Launches on one input whose answers are compared bit by bit, where rounding can show an order.
REPEATS = 10


def edge_sizes(block: int) -> list[int]:
    """Elements where reductions go wrong: none, one, about a warp, a block of so many threads, two,
    and odd sizes between."""
    near_blocks = (block - 1, block, block + 1, 2 * block - 1, 2 * block + 1)
    return sorted({0, 1, 2, 31, 32, 33, *near_blocks, 1023, 1024, 1025, 4097, 65537, 1000003})


#: Rows of every kind that row and warp kernels must get right: none, short, odd, many.
ROW_SHAPES = ((0, 3), (1, 1), (1, 7), (5, 33), (31, 3), (32, 257), (33, 5), (257, 9), (4097, 3))


@dataclass(frozen=True, slots=True)
class Input:
    """One input to verify with; `misaligned` starts it one element off its natural alignment."""

    pattern: str
    n: int
    rows: int = 1
    seed: int = 0
    misaligned: bool = False

    def __str__(self) -> str:
        rows = f" x {self.rows} rows" if self.rows != 1 else ""
        return f"n = {self.n}{rows}, {self.pattern}{', misaligned' * self.misaligned}"


@dataclass(frozen=True, slots=True)
class _Ready:
    """A case, planned for one shape and compiled."""

    case: Case
    plan: Plan
    programs: Programs


class Inputs:
    """Inputs with their right answers, made when asked for; the last one is kept, since the next
    kernel is likely to be given the same."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[Input, Reduction], tuple[Array, Reference]] | None = None

    def of(self, given: Input, reduction: Reduction) -> tuple[Array, Reference]:
        """The elements of an input, and what a reduction of them must give."""
        key = replace(given, misaligned=False), reduction
        if self._kept is None or self._kept[0] != key:
            self._kept = None  # first: a large one and the next need not fit into memory together
            data = make(given.pattern, reduction, given.n, given.rows, given.seed)
            self._kept = key, (data, reference(reduction, data, given.rows))
        return self._kept[1]


def _verify_on(
    backend: Backend, given: Input, ready: Sequence[_Ready], inputs: Inputs, *, quick: bool
) -> Iterator[tuple[Case, Verdict | None]]:
    """Run cases of one reduction on one input, from poisoned memory, and judge each answer."""
    reduction = ready[0].case.reduction
    data, ref = inputs.of(given, reduction)
    buffer = backend.upload(data, reduction.dtype.size if given.misaligned else 0)
    try:
        for one in ready:
            bound = Bound(backend, one.plan, one.programs, buffer)
            try:
                yield one.case, _in_every_way(backend, bound, ref, given, quick=quick)
            finally:
                bound.release()
    finally:
        backend.free(buffer)


def _in_every_way(
    backend: Backend, bound: Bound, ref: Reference, given: Input, *, quick: bool
) -> Verdict | None:
    """The verdict on one input in every way that the backend can run it; None if undecided."""
    verdict, bits = RIGHT, []
    many = given.pattern in ("random", "cancel") and given.n * given.rows <= SMALL
    # Where a kernel writes depends on the size and not on the values: one input of a size shows it.
    guarded = given.misaligned or given.pattern in _GUARDED
    # A second launch at least: a kernel may leave something behind that makes the next one wrong.
    effort = Effort(
        frozenset([(given.n, given.rows)]), frozenset([given.pattern.partition(":")[0]])
    )
    quick = quick or not needs_schedules(given.pattern)
    for way in backend.ways(REPEATS if many else 2, quick=quick):
        effort += Effort(schedules=frozenset([way] if way else []), launches=len(bound.plan.passes))
        bound.poison()
        try:
            bound.run()
            answers = bound.answers()
            new = judge(bound.plan, answers, ref, given.pattern)
        except KernelFault as fault:
            new = Verdict("fail", str(fault))
        outside = bound.damage() if new and new.outcome == "pass" and guarded else None
        if outside:
            new = Verdict("fail", outside)
        if new is None:
            return None
        if new.outcome == "fail":
            where = f"{given}{f', {way}' if way else ''}"
            return replace(new, reason=f"{where}: {new.reason}", effort=effort)
        bits.append(answers.tobytes())
        verdict = worse(verdict, new)
    if many:
        verdict = replace(verdict, distinct=len(set(bits)), launches=len(bits))
    return replace(verdict, effort=effort)


def inputs_for(
    reduction: Reduction, n: int, tiles: Iterable[int], thorough: bool = True
) -> list[tuple[str, bool]]:
    """Pattern and misalignment of each input that verifies size `n`; one input if not thorough.
    `tiles` are the elements that a block of each case takes."""
    patterns: dict[str, None] = {}
    for tile in sorted(set(tiles)):
        patterns |= dict.fromkeys(patterns_for(reduction, n, tile if n <= SMALL else n or 1))
    names = list(patterns)
    if not thorough:
        return [(names[0], False)]
    misaligned = [(names[0], True)] if 0 < n <= _MISALIGNED_UP_TO else []
    return [(name, False) for name in names] + misaligned


def verify(
    backend: Backend,
    prepared: Sequence[Prepared],
    shape: Shape,
    inputs: Inputs | None = None,
    *,
    seed: int = 0,
    thorough: bool = True,
    only: str | None = None,
) -> dict[Case, Verdict]:
    """Verify cases of one reduction at one shape, which all of them take; a case that failed is not
    run again. Not `thorough` is one input and one schedule; `only` names the one pattern to use,
    where a user wants to see what it does; `inputs` outlive the call where given. Raises
    OutOfMemory."""
    verdicts: dict[Case, Verdict] = {}
    inputs = inputs or Inputs()
    ready = [_Ready(one.case, one.plans[shape], one.programs) for one in prepared]
    for own in dict.fromkeys((one.plan.problem.n, one.plan.problem.rows) for one in ready):
        alike = [one for one in ready if (one.plan.problem.n, one.plan.problem.rows) == own]
        tiles = [one.plan.block * one.plan.items for one in alike]
        chosen = inputs_for(alike[0].case.reduction, own[0], tiles, thorough)
        for pattern, misaligned in chosen if only is None else [(only, False)]:
            left = [one for one in alike if verdicts.get(one.case, RIGHT).outcome != "fail"]
            given = Input(pattern, *own, seed, misaligned)
            for case, verdict in (
                _verify_on(backend, given, left, inputs, quick=not thorough) if left else ()
            ):
                if verdict is not None:
                    verdicts[case] = worse(verdicts.get(case, RIGHT), verdict)
    undecided = Verdict("fail", f"n = {shape[0]}: no pattern could decide; choose a smaller n")
    return {one.case: verdicts.get(one.case, undecided) for one in ready}
