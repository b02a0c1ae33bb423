"""Whether a kernel is right: bounds from the plan, patterns by operator, sizes where kernels fail.

Never a tolerance by taste, and never relative to the sum alone: a float sum must lie within
gamma_depth * sum|x| of the reference, everything else must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cudareduce.backend import Backend, KernelFault
from cudareduce.execute import Bound, Case, Programs
from cudareduce.inputs import Array, make, patterns_for
from cudareduce.operators import Reduction
from cudareduce.plan import Plan
from cudareduce.reference import Reference, bound, reference

#: Up to this size every pattern and every schedule is tried, above it on the CPU one of each.
SMALL = 2**20
#: Up to this size the input is also given off its natural alignment.
_MISALIGNED_UP_TO = 65537
#: One of these is among the patterns of every operator.
_GUARDED = ("random", "rising", "cancel")
#: Launches on one input whose answers are compared bit by bit, where rounding can show an order.
REPEATS = 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error`, in `ulp` too, and `bound` are those of the answer nearest to, or farthest over, its
    bound; `distinct` is how many different answers `launches` on one input gave, bit by bit."""

    outcome: Literal["pass", "fail", "skip"]
    reason: str = ""
    error: float | None = None
    bound: float | None = None
    ulp: float | None = None
    distinct: int | None = None
    launches: int | None = None


PASS = Verdict("pass")


def edge_sizes(block: int) -> list[int]:
    """Where reductions go wrong: none, one, about a warp, a block, two, and odd sizes between."""
    near_blocks = (block - 1, block, block + 1, 2 * block - 1, 2 * block + 1)
    return sorted({0, 1, 2, 31, 32, 33, *near_blocks, 1023, 1024, 1025, 4097, 65537, 1000003})


#: Rows of every kind that row and warp kernels must get right: none, short, odd, many.
ROW_SHAPES = ((0, 3), (1, 1), (1, 7), (5, 33), (31, 3), (32, 257), (33, 5), (257, 9), (4097, 3))


def judge(plan: Plan, answers: Array, ref: Reference, pattern: str) -> Verdict | None:
    """Compare answers with the reference; None where the plan's bound is too wide to decide."""
    limits = bound(plan.problem.what, plan.depth, ref, pattern == "exact")
    if limits is None:
        return None
    expected = ref.expected
    same = answers == expected
    if answers.dtype.kind == "f":
        same |= np.isnan(answers) & np.isnan(expected)
    if ref.magnitude is None and ref.tolerance is None:
        wrong = np.flatnonzero(~(same.all(axis=1) if same.ndim > 1 else same))
        errors = np.zeros(len(expected))
        if answers.ndim == 1 and answers.dtype.kind in "iuf":
            with np.errstate(invalid="ignore"):
                distance = np.abs(answers.astype(np.longdouble) - expected.astype(np.longdouble))
            errors = np.where(same, 0.0, distance).astype(float)
    else:
        with np.errstate(invalid="ignore"):
            errors = np.abs(answers.astype(np.longdouble) - expected).astype(float)
        errors = np.where(same, 0.0, errors)  # infinities may be equal, and differ by no number
        wrong = np.flatnonzero(~(np.isfinite(errors) & (errors <= limits)))
    if len(wrong):
        k = wrong[0]
        where = f" in row {k} of {len(expected)}" if len(expected) > 1 else ""
        allowed = f" (error {errors[k]:.3g}, bound {limits[k]:.3g})" if limits[k] else ""
        reason = f"got {_text(answers[k])}, expected {_text(expected[k])}{where}{allowed}"
        error = float(errors[k]) if np.isfinite(errors[k]) else None
        return Verdict("fail", reason, error, float(limits[k]))
    if not len(errors):
        return PASS
    k = int(np.argmax(errors / np.maximum(limits, np.finfo(float).tiny)))
    ulp = _in_ulp(float(errors[k]), expected[k], answers.dtype)
    return Verdict("pass", "", float(errors[k]), float(limits[k]), ulp)


def _in_ulp(error: float, expected: object, dtype: np.dtype) -> float | None:
    """An error in units of the last place that the right answer has in the type of answers."""
    if dtype.kind != "f":
        return None
    place = float(np.spacing(np.abs(np.asarray(expected)).astype(dtype)))
    return error / place if np.isfinite(place) else None


def _text(value: object) -> str:
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return f"{float(array):.9g}"
    return str(array.tolist())


def worse(old: Verdict, new: Verdict) -> Verdict:
    """The verdict that stands after both: a failure, else the one nearest to its bound; with the
    most distinct answers that either saw."""
    kept = _worse(old, new)
    seen = max(old, new, key=lambda verdict: verdict.distinct or 0)
    return replace(kept, distinct=seen.distinct, launches=seen.launches)


def _worse(old: Verdict, new: Verdict) -> Verdict:
    rank = ("pass", "skip", "fail")
    if old.outcome != new.outcome:
        return max(old, new, key=lambda verdict: rank.index(verdict.outcome))
    if old.outcome != "pass":
        return old
    if old.error is None:
        return new

    def share(verdict: Verdict) -> float:
        return (verdict.error or 0.0) / (verdict.bound or np.inf)

    return new if new.error is not None and share(new) > share(old) else old


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


def verify_on(
    backend: Backend,
    given: Input,
    cases: Sequence[tuple[Case, Programs]],
    schedules: Sequence[str] = (),
) -> Iterator[tuple[Case, Verdict | None]]:
    """Run cases of one reduction on one input, from poisoned memory, and judge each answer."""
    what = cases[0][0].what
    data = make(given.pattern, what, given.n, given.rows, given.seed)
    ref = reference(what, data, given.rows)
    buffer = backend.upload(data, what.dtype.size if given.misaligned else 0)
    try:
        for case, programs in cases:
            plan = case.plan(given.n, given.rows, backend.limits())
            bound = Bound(backend, plan, programs, buffer)
            try:
                yield case, _on_all_schedules(backend, bound, ref, given, schedules)
            finally:
                bound.release()
    finally:
        backend.free(buffer)


def _on_all_schedules(
    backend: Backend, bound: Bound, ref: Reference, given: Input, schedules: Sequence[str]
) -> Verdict | None:
    verdict, bits = PASS, []
    many = given.pattern in ("random", "cancel") and given.n * given.rows <= SMALL
    # Where a kernel writes depends on the size and not on the values: one input of a size shows it.
    guarded = given.misaligned or given.pattern in _GUARDED
    # A second launch at least: a kernel may leave something behind that makes the next one wrong.
    turns = schedules or ("",) * (REPEATS if many else 2)
    for schedule in turns:
        if schedule:
            backend.schedule = schedule
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
            within = f"{given}, schedule {schedule}" if schedule else str(given)
            return replace(new, reason=f"{within}: {new.reason}")
        bits.append(answers.tobytes())
        verdict = worse(verdict, new)
    if many:
        return replace(verdict, distinct=len(set(bits)), launches=len(bits))
    return verdict


def inputs_for(
    what: Reduction, n: int, tiles: Iterable[int], thorough: bool = True
) -> list[tuple[str, bool]]:
    """Pattern and misalignment of each input that verifies size `n`; one input if not thorough."""
    patterns: dict[str, None] = {}
    for tile in sorted(set(tiles)):
        patterns |= dict.fromkeys(patterns_for(what, n, tile if n <= SMALL else n or 1))
    names = list(patterns)
    if not thorough:
        return [(names[0], False)]
    misaligned = [(names[0], True)] if 0 < n <= _MISALIGNED_UP_TO else []
    return [(name, False) for name in names] + misaligned


def verify(
    backend: Backend,
    cases: Sequence[tuple[Case, Programs]],
    n: int,
    rows: int = 1,
    *,
    seed: int = 0,
    thorough: bool = True,
    schedules: Sequence[str] = (),
    only: str | None = None,
) -> dict[Case, Verdict]:
    """Verify cases of one reduction at one size; a case that failed is not run again. `only` names
    the one pattern to use, where a user wants to see what it does."""
    verdicts: dict[Case, Verdict] = {}
    shapes = dict.fromkeys(case.kernel.shape(n, rows) for case, _ in cases)
    for shape in shapes:
        alike = [c for c in cases if c[0].kernel.shape(n, rows) == shape]
        tiles = [case.block * case.items for case, _ in alike]
        chosen = inputs_for(alike[0][0].what, shape[0], tiles, thorough)
        for pattern, misaligned in chosen if only is None else [(only, False)]:
            left = [c for c in alike if verdicts.get(c[0], PASS).outcome != "fail"]
            given = Input(pattern, *shape, seed, misaligned)
            for case, verdict in verify_on(backend, given, left, schedules) if left else ():
                if verdict is not None:
                    verdicts[case] = worse(verdicts.get(case, PASS), verdict)
    undecided = Verdict("fail", f"n = {n}: no pattern could decide; choose a smaller n")
    return {case: verdicts.get(case, undecided) for case, _ in cases}
