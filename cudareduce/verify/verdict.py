"""Verdicts: judging a result against its bound, and combining verdicts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Literal

import numpy as np

from cudareduce.errors import BuildError, NotEmulated
from cudareduce.launch.plan import Plan
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.inputs import Array, as_results, is_exact, roundings
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import Reference, bound, max_bounded_size


@dataclass(frozen=True, slots=True)
class Effort:
    """Test coverage of a verdict: sizes with their rows, patterns, schedules by name, and the
    number of launches."""

    sizes: frozenset[tuple[int, int]] = frozenset()
    patterns: frozenset[str] = frozenset()
    schedules: frozenset[str] = frozenset()
    launches: int = 0

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            self.sizes | other.sizes, self.patterns | other.patterns,
            self.schedules | other.schedules, self.launches + other.launches,
        )  # fmt: skip


#: Characters of a verdict in one line.
_SUMMARY = 100
#: Messages of g++ and nvcc on an undeclared constant.
_UNDECLARED = re.compile(
    r"'((?:k[A-Z]|[A-Z_])\w+)' was not declared|identifier \"((?:k[A-Z]|[A-Z_])\w+)\" is undefined"
)
#: Why a case is skipped: the kernel does not support the request, does not compile, the machine
#: lacks something, or there was no time.
Cause = Literal["unfit", "unbuilt", "machine", "time"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of verifying a case.

    `error` (in the unit of results, and as `ulp`) and `bound` belong to the result nearest to its
    bound, or to the first beyond it. `distinct` is the number of different results, bit by bit, of
    `launches` on one input. `cause` is why a case is skipped. `undecided` is True if part of the
    verification had no result, as the reason says. `conditions` are the preconditions under which
    the verdict holds, in words that follow `right if`. `explained` is True if the reason for a
    wrong result ends with its cause."""

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
    explained: bool = False

    @property
    def summary(self) -> str:
        """The verdict in one short line."""
        if self.outcome == "pass":
            return "right"
        word = "WRONG" if self.outcome == "fail" else "skipped"
        return shorten(f"{word}: {self.reason}", _SUMMARY, placeholder=" ...")


RIGHT = Verdict("pass")
#: Beginning of the reason for a wrong result.
WRONG_RESULT = "got "
#: Messages of the emulator for synchronisation faults. The kernel is wrong on every input, even if
#: only some sizes expose the fault.
_SYNCHRONISATION = (
    " data race in ", "barrier divergence: ", "local variable of another thread",
    "shared memory is read before any thread has written it",
)  # fmt: skip


def is_synchronisation_fault(reason: str) -> bool:
    """True for data races, barrier divergence and similar faults, for which no precondition is
    inferred."""
    return any(words in reason for words in _SYNCHRONISATION)


def is_outside_shared(reason: str) -> bool:
    """True for an access outside of shared memory or of an array of known size."""
    return "dynamic shared memory" in reason or "is outside the array" in reason


#: Beginning of the reason for an external program that is requested with another operator.
ADDS = "this kernel adds"
#: Beginning of the reason for a kernel that does not end.
HANGS = "no result after"
#: Reason for a kernel that has changed its input.
WROTE_INPUT = "it wrote to its input"
#: Bytes of the widest float that float64 holds with room for errors.
_SINGLE_BYTES = 4


def is_unexplained(verdict: Verdict) -> bool:
    """True for a wrong result without a cause."""
    return verdict.outcome == "fail" and WRONG_RESULT in verdict.reason and not verdict.explained


def skipped(cause: Cause, reason: str) -> Verdict:
    """The verdict on a case that was not verified."""
    return Verdict("skip", reason, cause=cause)


#: Reason if no input can distinguish a right result from a wrong one.
UNDECIDED = "no pattern could decide"


def not_decided(n: int) -> Verdict:
    """The verdict on a size at which no input can distinguish a right result from a wrong one."""
    return skipped("unfit", f"n = {n}: {UNDECIDED}; choose a smaller n")


def if_launched(verdict: Verdict) -> Verdict:
    """The verdict, or a skip if it passed without a single launch."""
    if verdict.outcome != "pass" or verdict.effort.launches:
        return verdict
    why = "takes none of the sizes that are tried: --n says one that it takes, with --sizes-only"
    return skipped("unfit", why)


def unbuilt(error: BuildError, *, of_others: bool) -> Verdict:
    """The verdict on a case that does not compile. An external file may lack a constant that its
    author passed to the compiler."""
    if isinstance(error, NotEmulated):
        return skipped("machine", str(error))
    lacks = _UNDECLARED.search(str(error)) if of_others else None
    advice = f" (-D {lacks[1] or lacks[2]}=VALUE says what nothing defines)" if lacks else ""
    return skipped("unbuilt", f"does not compile{advice}: {error}")


def judge(plan: Plan, results: Array, ref: Reference, pattern: str) -> Verdict | None:
    """Compare results, as `Bound.results` returns them, with the reference; None if the plan's
    error bound is too wide to decide."""
    reduction = plan.problem.reduction
    # Summing partial results on the host adds one rounding, a square root and its square three.
    external = plan.kernel.program
    root = external is not None and external.root
    more = plan.folds_on_host + 3 * root
    depth = roundings(pattern, reduction, plan.problem.n, plan.depth + more)
    exact = is_exact(pattern, reduction) and not plan.rounds_shares and not root
    known = replace(ref, exact=False) if plan.rounds_shares or root else ref
    if plan.rounds_shares and plan.recorded and (is_exact(pattern, reduction) or ref.exact):
        depth = min(depth, plan.share_depth)
    limits = bound(reduction, depth + plan.rounds_shares, known, exact)
    if limits is None:
        return None
    expected, errors = ref.expected, np.zeros(len(ref.expected))
    if expected.dtype.kind == "f" and results.dtype.itemsize <= _SINGLE_BYTES:
        with np.errstate(over="ignore"):
            expected = expected.astype(float)  # ten times as fast as long double
    if reduction.stored is not None:
        results, expected = (_in_range(x, reduction.stored) for x in (results, expected))
        limits = _once_stored(reduction, expected, limits)
    same = results == expected
    if results.dtype.kind == "f" and not same.all():
        same |= np.isnan(results) & np.isnan(expected)
    if ref.numbers is not None and ref.numbers.size:
        same |= _of_equals(ref.numbers, results, expected)
    rounds = ref.magnitude is not None or ref.tolerance is not None
    # Equal infinities have no difference, so only differing results have errors.
    off = np.flatnonzero(~(same.all(axis=1) if same.ndim > 1 else same))
    if len(off) and results.ndim == 1 and results.dtype.kind in "iuf":
        wide = expected.dtype if rounds else np.longdouble
        with np.errstate(invalid="ignore"):
            distance = np.abs(results[off].astype(wide) - expected[off].astype(wide))
        errors[off] = distance
    wrong = off[~(np.isfinite(errors[off]) & (errors[off] <= limits[off]))] if rounds else off
    if len(wrong):
        k = wrong[0]
        where = f" in row {k} of {len(expected)}" if len(expected) > 1 else ""
        allowed = f" (error {errors[k]:.3g}, bound {limits[k]:.3g})" if limits[k] else ""
        reason = f"{WRONG_RESULT}{_text(results[k])}, expected {_text(expected[k])}{where}{allowed}"
        error = float(errors[k]) if np.isfinite(errors[k]) else None
        return Verdict("fail", reason, error, float(limits[k]))
    unclear = reduction.stored and reduction.map and not reduction.within
    if unclear and plan.problem.n > max_bounded_size(reduction):
        return None  # transformed values do not cancel, so one lost element may not show
    if not len(errors):
        return RIGHT
    k = int(np.argmax(errors / np.maximum(limits, np.finfo(float).tiny)))
    ulp = _in_ulp(float(errors[k]), expected[k], reduction)
    return Verdict("pass", "", float(errors[k]), float(limits[k]), ulp)


def _of_equals(numbers: Array, indices: Array, expected: Array) -> Array:
    """For each row, whether the result is the index of an element equal to the expected one."""
    rows, n = np.arange(len(numbers)), numbers.shape[1]
    there = (indices >= 0) & (indices < n)
    clipped = np.where(there, indices, 0).astype(np.int64)
    return np.asarray(there & (numbers[rows, clipped] == numbers[rows, expected.astype(np.int64)]))


def _in_range(values: Array, kind: DType) -> Array:
    """Numbers clipped to the first value beyond the range of a type."""
    return np.asarray(np.clip(values.astype(float), -kind.overflow_limit, kind.overflow_limit))


def _once_stored(reduction: Reduction, expected: Array, limits: Array) -> Array:
    """Error bounds of results that are rounded once more when they are stored: the larger error of
    the two rounded ends of their interval, 0 if the right result needs no rounding."""
    assert reduction.stored is not None
    ends = (as_results(expected + side * limits, reduction) for side in (-1, 1))
    off = [np.abs(_in_range(end, reduction.stored) - expected) for end in ends]
    return np.asarray(np.nan_to_num(np.maximum(*off)))


def _in_ulp(error: float, expected: object, reduction: Reduction) -> float | None:
    """An error in units in the last place of the expected result, in the type of results."""
    dtype = np.dtype(replace(reduction, stored=None).result_dtype)
    if dtype.kind != "f":
        return None
    if reduction.stored is not None:
        error *= reduction.acc.epsilon / reduction.stored.epsilon
    with np.errstate(over="ignore"):  # the largest finite value has no successor
        ulp = float(np.spacing(np.abs(np.asarray(expected)).astype(dtype)))
    return error / ulp if np.isfinite(ulp) and ulp else None


def _text(value: object) -> str:
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return f"{float(array):.9g}"
    return str(array.tolist())


def worse(old: Verdict, new: Verdict) -> Verdict:
    """The worse of two verdicts: a failure, rather one with a cause, else the one nearest to its
    bound; with the larger number of distinct results and the coverage of both."""
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
        return new if is_unexplained(old) and not is_unexplained(new) else old
    if old.error is None:
        return new

    def share(verdict: Verdict) -> float:
        return (verdict.error or 0.0) / (verdict.bound or np.inf)

    return new if new.error is not None and share(new) > share(old) else old
