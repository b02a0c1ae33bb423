"""Whether answers are right: a verdict, how it is formed, and which of two stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cudareduce.errors import BuildError, NotEmulated
from cudareduce.launch.plan import Plan
from cudareduce.problem.dtypes import DType
from cudareduce.problem.inputs import Array, as_answers, roundings, rounds_nothing
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import Reference, bound, most_bounded


@dataclass(frozen=True, slots=True)
class Effort:
    """What a verdict rests on: sizes with their rows, patterns, schedules by name, and how many
    launches of the kernel."""

    sizes: frozenset[tuple[int, int]] = frozenset()
    patterns: frozenset[str] = frozenset()
    schedules: frozenset[str] = frozenset()
    launches: int = 0

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            self.sizes | other.sizes, self.patterns | other.patterns,
            self.schedules | other.schedules, self.launches + other.launches,
        )  # fmt: skip


#: What g++ and nvcc say of a constant that nothing declares.
_UNDECLARED = re.compile(
    r"'((?:k[A-Z]|[A-Z_])\w+)' was not declared|identifier \"((?:k[A-Z]|[A-Z_])\w+)\" is undefined"
)
#: Why there is no answer: the kernel does not take what was asked for, does not compile, the
#: machine has not what it needs, or there was no time.
Cause = Literal["unfit", "unbuilt", "machine", "time"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error`, in the unit of answers and in `ulp`, and `bound` are those of the answer nearest to
    its bound, or of the first one over it; `distinct` is how many different answers `launches` on
    one input gave, bit by bit. `cause` is why a case is skipped; `undecided`: what stands rests on
    less than was tried, as the reason says. It holds on `conditions`, in words that follow
    `right if`."""

    outcome: Literal["pass", "fail", "skip"]
    reason: str = ""
    error: float | None = None
    bound: float | None = None
    ulp: float | None = None
    distinct: int | None = None
    launches: int | None = None
    cause: Cause | None = None
    effort: Effort = Effort()
    undecided: bool = False
    conditions: tuple[str, ...] = ()


RIGHT = Verdict("pass")
#: What the verdict on a race says, and no other does.
HAZARD = " hazard in "
#: What is said of a kernel that does not end.
HANGS = "no answer after"
#: What is wrong with a kernel after which the input is not what it was.
WROTE_INPUT = "it wrote to its input"
#: Bytes of the widest float that float64 holds with room for errors.
_SINGLE_BYTES = 4


def skipped(cause: Cause, reason: str) -> Verdict:
    """The verdict on a case that was not tried."""
    return Verdict("skip", reason, cause=cause)


#: What is said where no input tells right from wrong.
UNDECIDED = "no pattern could decide"


def not_decided(n: int) -> Verdict:
    """The verdict on a case of which no input tells right from wrong at a size."""
    return skipped("unfit", f"n = {n}: {UNDECIDED}; choose a smaller n")


def if_launched(verdict: Verdict) -> Verdict:
    """A verdict, unless nothing but no elements was tried, which is no reason to call it right."""
    if verdict.outcome != "pass" or verdict.effort.launches:
        return verdict
    why = "takes none of the sizes that are tried: --n says one that it takes, with --sizes-only"
    return skipped("unfit", why)


def unbuilt(error: BuildError, *, of_others: bool) -> Verdict:
    """The verdict on a case for which there is no program; a file of others may lack a constant
    that its author gave to the compiler."""
    if isinstance(error, NotEmulated):
        return skipped("machine", str(error))
    lacks = _UNDECLARED.search(str(error)) if of_others else None
    advice = f" (-D {lacks[1] or lacks[2]}=VALUE says what nothing defines)" if lacks else ""
    return skipped("unbuilt", f"does not compile{advice}: {error}")


def judge(plan: Plan, answers: Array, ref: Reference, pattern: str) -> Verdict | None:
    """Compare answers, as `Bound.answers` gives them, with the reference; None where the plan's
    bound is too wide to decide."""
    reduction = plan.problem.reduction
    # The host's fold of partials ends in a rounding of its own.
    depth = roundings(pattern, reduction, plan.problem.n, plan.depth + plan.folds_on_host)
    exact = rounds_nothing(pattern, reduction) and not plan.shares
    known = replace(ref, exact=False) if plan.shares else ref
    limits = bound(reduction, depth + plan.shares, known, exact)
    if limits is None:
        return None
    expected, errors = ref.expected, np.zeros(len(ref.expected))
    if expected.dtype.kind == "f" and answers.dtype.itemsize <= _SINGLE_BYTES:
        with np.errstate(over="ignore"):
            expected = expected.astype(float)  # at a tenth of the time of a long double's
    if reduction.stored is not None:
        answers, expected = (_in_range(x, reduction.stored) for x in (answers, expected))
        limits = _once_stored(reduction, expected, limits)
    same = answers == expected
    if answers.dtype.kind == "f" and not same.all():
        same |= np.isnan(answers) & np.isnan(expected)
    if ref.numbers is not None and ref.numbers.size:
        same |= _of_equals(ref.numbers, answers, expected)
    rounds = ref.magnitude is not None or ref.tolerance is not None
    # Infinities may be equal, and differ by no number: errors are of what is not the same.
    off = np.flatnonzero(~(same.all(axis=1) if same.ndim > 1 else same))
    if len(off) and answers.ndim == 1 and answers.dtype.kind in "iuf":
        wide = expected.dtype if rounds else np.longdouble
        with np.errstate(invalid="ignore"):
            distance = np.abs(answers[off].astype(wide) - expected[off].astype(wide))
        errors[off] = distance
    wrong = off[~(np.isfinite(errors[off]) & (errors[off] <= limits[off]))] if rounds else off
    if len(wrong):
        k = wrong[0]
        where = f" in row {k} of {len(expected)}" if len(expected) > 1 else ""
        allowed = f" (error {errors[k]:.3g}, bound {limits[k]:.3g})" if limits[k] else ""
        reason = f"got {_text(answers[k])}, expected {_text(expected[k])}{where}{allowed}"
        error = float(errors[k]) if np.isfinite(errors[k]) else None
        return Verdict("fail", reason, error, float(limits[k]))
    unclear = reduction.stored and reduction.map and not reduction.within
    if unclear and plan.problem.n > most_bounded(reduction):
        return None  # what a map makes does not cancel, so one element of more may not show
    if not len(errors):
        return RIGHT
    k = int(np.argmax(errors / np.maximum(limits, np.finfo(float).tiny)))
    ulp = _in_ulp(float(errors[k]), expected[k], reduction)
    return Verdict("pass", "", float(errors[k]), float(limits[k]), ulp)


def _of_equals(numbers: Array, answers: Array, expected: Array) -> Array:
    """Which answers are places of what stands at the expected ones, in each of these rows."""
    rows, n = np.arange(len(numbers)), numbers.shape[1]
    there = (answers >= 0) & (answers < n)
    places = np.where(there, answers, 0).astype(np.int64)
    return np.asarray(there & (numbers[rows, places] == numbers[rows, expected.astype(np.int64)]))


def _in_range(values: Array, kind: DType) -> Array:
    """Numbers, of which those beyond what a type holds, infinite ones too, are the first beyond."""
    return np.asarray(np.clip(values.astype(float), -kind.beyond, kind.beyond))


def _once_stored(reduction: Reduction, expected: Array, limits: Array) -> Array:
    """How far answers may lie off that are rounded once more when they are stored: as far as what
    becomes then of both ends of where they may lie. None may where the right one needs no
    rounding."""
    assert reduction.stored is not None
    ends = (as_answers(expected + side * limits, reduction) for side in (-1, 1))
    off = [np.abs(_in_range(end, reduction.stored) - expected) for end in ends]
    return np.asarray(np.nan_to_num(np.maximum(*off)))


def _in_ulp(error: float, expected: object, reduction: Reduction) -> float | None:
    """An error in units of the last place that the right answer has in the type of answers."""
    dtype = np.dtype(replace(reduction, stored=None).result_dtype)
    if dtype.kind != "f":
        return None
    if reduction.stored is not None:
        error *= reduction.acc.epsilon / reduction.stored.epsilon
    with np.errstate(over="ignore"):  # beside the largest finite value there is no last place
        place = float(np.spacing(np.abs(np.asarray(expected)).astype(dtype)))
    return error / place if np.isfinite(place) and place else None


def _text(value: object) -> str:
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return f"{float(array):.9g}"
    return str(array.tolist())


def worse(old: Verdict, new: Verdict) -> Verdict:
    """The verdict that stands after both: a failure, else the one nearest to its bound; with the
    most distinct answers that either saw, and what both took."""
    kept = _worse(old, new)
    seen = max(old, new, key=lambda verdict: (verdict.distinct or 0, verdict.launches or 0))
    return replace(
        kept, distinct=seen.distinct, launches=seen.launches, effort=old.effort + new.effort,
        undecided=old.undecided or new.undecided,
        conditions=tuple(dict.fromkeys(old.conditions + new.conditions)),
    )  # fmt: skip


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
