"""Whether a kernel is right: bounds from the plan, patterns by operator, sizes where kernels fail.

Never a tolerance by taste, and never relative to the sum alone: a float sum must lie within
gamma_depth * sum|x| of the reference, everything else must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from cudareduce.backend import Backend, Buffer, KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Prepared, Programs, Shape
from cudareduce.launch.plan import Plan
from cudareduce.problem.inputs import Array, make
from cudareduce.problem.nets import needs_schedules, patterns_for
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import Reference, reference
from cudareduce.verify.shapes import Care
from cudareduce.verify.verdict import RIGHT, Effort, Verdict, judge, worse

#: Up to this size every pattern and every schedule is tried, above it on the CPU one of each.
SMALL = 2**20
#: Up to this size the input is also given off its natural alignment, up to the other in every way.
_MISALIGNED_UP_TO, _IN_EVERY_WAY_UP_TO = 65537, 1025
#: Elements off it, as far as a load of 16 bytes can tell them apart.
_OFFSETS = (1, 2, 3, 5, 7)
#: One of these is among the patterns of every operator.
_GUARDED = ("random", "rising", "cancel")
#: Launches on one input whose answers are compared bit by bit, where rounding can show an order.
REPEATS = 10
#: What memory holds before a launch, in turn: NaN and -1, ones and small numbers, and very large
#: numbers of either sign, since no one of them shows in every sum and every extremum.
_POISONS = (0xFF, 0x01, 0x7F, 0xFE)
#: What is added to the seed of elements that are misaligned: an operator may have one pattern only.
_ANOTHER_SEED = 2**31
#: Bytes of inputs that are kept for the next kernel.
_KEPT_BYTES = 2**26


@dataclass(frozen=True, slots=True)
class Input:
    """One input to verify with; it starts `offset` elements off its natural alignment."""

    pattern: str
    n: int
    rows: int = 1
    seed: int = 0
    offset: int = 0

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


@dataclass(frozen=True, slots=True)
class _Ready:
    """A case, planned for one shape and compiled."""

    case: Case
    plan: Plan
    programs: Programs


class Inputs:
    """Inputs with their right answers, made when asked for; the last ones are kept, since the next
    kernel is likely to be given the same."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Input, Reduction], tuple[Array, Reference]] = {}

    def of(self, given: Input, reduction: Reduction) -> tuple[Array, Reference]:
        """The elements of an input, and what a reduction of them must give."""
        key = replace(given, offset=0), reduction
        found = self._kept.pop(key, None)
        if found is None:
            self._make_room(given.elements * reduction.dtype.size)
            data = make(given.pattern, reduction, given.n, given.rows, given.seed)
            found = data, reference(reduction, data, given.rows)
        self._kept[key] = found
        return found

    def _make_room(self, nbytes: int) -> None:
        """Let the oldest go, before another is made: two large ones need not fit into memory."""
        held = nbytes + sum(data.nbytes for data, _ in self._kept.values())
        while self._kept and held > _KEPT_BYTES:
            held -= self._kept.pop(next(iter(self._kept)))[0].nbytes


@dataclass(frozen=True, slots=True)
class _Given:
    """An input on the device, with what it must give."""

    input: Input
    data: Array
    ref: Reference
    buffer: Buffer

    @property
    def many(self) -> bool:
        """Whether the answers of launches on it are compared bit by bit."""
        return self.input.pattern in ("random", "cancel") and self.input.elements <= SMALL


def _verify_on(
    backend: Backend,
    group: Sequence[Input],
    ready: Sequence[_Ready],
    inputs: Inputs,
    *,
    quick: bool,
) -> Iterator[tuple[Case, list[Verdict | None]]]:
    """Run cases of one reduction on inputs of one shape, and judge each answer: verdicts as
    `_in_every_way` gives them."""
    reduction = ready[0].case.reduction
    with ExitStack() as stack:
        given = []
        for one in group:
            data, ref = inputs.of(one, reduction)
            buffer = backend.upload(data, one.offset * reduction.dtype.size)
            stack.callback(backend.free, buffer)
            given.append(_Given(one, data, ref, buffer))
        for case in ready:
            with ExitStack() as bounds:
                tied = [Bound(backend, case.plan, case.programs, one.buffer) for one in given]
                for bound in tied:
                    bounds.callback(bound.release)
                yield case.case, _in_every_way(backend, tied, given, quick=quick)


def _in_every_way(
    backend: Backend, bounds: Sequence[Bound], given: Sequence[_Given], *, quick: bool
) -> list[Verdict | None]:
    """The verdict on each input in every way that the backend can run it, up to a failure; None if
    undecided. Inputs take turns, so that no launch finds the one before it to have been given the
    same."""
    verdicts: list[Verdict | None] = [RIGHT] * len(given)
    answers: list[list[bytes]] = [[] for _ in given]
    repeats = REPEATS if any(one.many for one in given) else 2
    for turn, way in enumerate(backend.ways(repeats, quick=quick)):
        for k, (bound, one) in enumerate(zip(bounds, given, strict=True)):
            old = verdicts[k]
            if old is None or (not way and turn > 1 and not one.many):
                continue
            if way and turn and not needs_schedules(one.input.pattern):
                continue
            bound.poison(_POISONS[(turn + k) % len(_POISONS)])
            new, bits = _once(bound, one, way)
            verdicts[k] = worse(old, new) if new else None
            if new and new.outcome == "fail":
                return verdicts
            answers[k].append(bits)
    for k, (one, bits_of_one) in enumerate(zip(given, answers, strict=True)):
        verdict = verdicts[k]
        if verdict is None:
            continue
        changed = _changed(backend, one)
        if changed:
            verdicts[k] = replace(verdict, outcome="fail", reason=f"{one.input}: {changed}")
            return verdicts
        if one.many:
            verdicts[k] = replace(
                verdict, distinct=len(set(bits_of_one)), launches=len(bits_of_one)
            )
    return verdicts


def _once(bound: Bound, one: _Given, way: str) -> tuple[Verdict | None, bytes]:
    """The verdict on one run, None if undecided, and the bits of its answers."""
    given, bits = one.input, b""
    # Where a kernel writes depends on the size and not on the values: one input of a size shows it.
    guarded = given.offset or given.pattern in _GUARDED
    try:
        bound.run()
        answers = bound.answers()
        new = judge(bound.plan, answers, one.ref, given.pattern)
        bits = answers.tobytes()
    except KernelFault as fault:
        new = Verdict("fail", str(fault))
    if new is None:
        return None, bits
    outside = bound.damage() if new.outcome == "pass" and guarded else None
    if outside:
        new = Verdict("fail", outside)
    if new.outcome == "fail":
        where = f"{given}{f', {way}' if way else ''}"
        new = replace(new, reason=f"{where}: {new.reason}")
    schedules = frozenset([way] if way else [])
    launches = Effort(schedules=schedules, launches=len(bound.plan.passes))
    return replace(new, effort=given.effort + launches), bits


def _changed(backend: Backend, one: _Given) -> str | None:
    """What has become of an input, where it is small enough to be looked at."""
    data = one.data
    if not len(data) or one.input.elements > SMALL:
        return None
    now = backend.download(one.buffer, data.dtype.str, data.size).reshape(data.shape)
    places = np.flatnonzero(now.view(np.uint8) != data.view(np.uint8))
    if not len(places):
        return None
    return f"it wrote to its input, at element {places[0] // data.dtype.itemsize}"


def inputs_for(
    reduction: Reduction, shape: Shape, tiles: Iterable[int], care: Care = "full"
) -> list[tuple[str, int]]:
    """Pattern and misalignment of each input that verifies a shape with so much care; with the
    least it is the first that decides. `tiles` are the elements that a block of each case
    takes."""
    n, elements = shape[0], shape[0] * shape[1]
    patterns: dict[str, None] = {}
    for tile in sorted(set(tiles)):
        patterns |= dict.fromkeys(patterns_for(reduction, n, tile if n <= SMALL else n or 1))
    names = list(patterns)
    if reduction.op.expression and care != "full":
        names = names[-1:]  # of which least is rounded: how much may be is the user's guess
    if care == "least":
        return [(name, 0) for name in names]
    offsets = [k for k in _OFFSETS if k * reduction.dtype.size < 16]
    if care == "some":
        names = names[:2]
    if care == "some" or elements > _IN_EVERY_WAY_UP_TO:
        offsets = [offsets[n % len(offsets)]]
    misaligned = offsets if 0 < elements <= _MISALIGNED_UP_TO else []
    return [*((name, 0) for name in names), *((names[0], offset) for offset in misaligned)]


def work(plan: Plan, care: Care, only: str | None) -> int:
    """Elements that a verification of one shape has reduced, over all inputs and ways."""
    problem = plan.problem
    shape, tile = (problem.n, problem.rows), plan.block * plan.items
    if care == "least":
        return problem.elements
    count = 1 if only else len(inputs_for(problem.reduction, shape, [tile], care))
    return problem.elements * count * REPEATS


def _is_open(verdict: Verdict | None, care: Care) -> bool:
    """Whether another input may change a verdict."""
    return verdict is None or (verdict.outcome != "fail" and care != "least")


def verify(
    backend: Backend,
    prepared: Sequence[Prepared],
    shape: Shape,
    inputs: Inputs | None = None,
    *,
    seed: int = 0,
    care: Care = "full",
    only: str | None = None,
) -> dict[Case, Verdict]:
    """Verify cases of one reduction at one shape, which all of them take; a case that failed is not
    run again. `only` names the one pattern to use, where a user wants to see what it does; `inputs`
    outlive the call where given. Raises OutOfMemory."""
    verdicts: dict[Case, Verdict] = {}
    inputs = inputs or Inputs()
    ready = [_Ready(one.case, one.plans[shape], one.programs) for one in prepared]
    for own in dict.fromkeys((one.plan.problem.n, one.plan.problem.rows) for one in ready):
        alike = [one for one in ready if (one.plan.problem.n, one.plan.problem.rows) == own]
        tiles = [one.plan.block * one.plan.items for one in alike]
        chosen = inputs_for(alike[0].case.reduction, own, tiles, care)
        # Of an operator of one's own the tolerance is a guess: no further random elements.
        further = 0 if alike[0].case.reduction.op.expression else _ANOTHER_SEED
        given = [
            Input(name, *own, seed + further * (offset > 0), offset)
            for name, offset in ([(only, 0)] if only else chosen)
        ]
        together = len(given) if own[0] * own[1] <= SMALL and care != "least" else 1
        for first in range(0, len(given), together):
            left = [one for one in alike if _is_open(verdicts.get(one.case), care)]
            for case, found in (
                _verify_on(
                    backend, given[first : first + together], left, inputs, quick=care == "least"
                )
                if left else ()
            ):  # fmt: skip
                for verdict in found:
                    if verdict is not None:
                        verdicts[case] = worse(verdicts.get(case, RIGHT), verdict)
    undecided = Verdict("fail", f"n = {shape[0]}: no pattern could decide; choose a smaller n")
    return {one.case: verdicts.get(one.case, undecided) for one in ready}
