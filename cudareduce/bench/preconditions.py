"""The weakest precondition under which an external program is right, where it is not always right.

Preconditions are what an author would document. A data race, barrier divergence, an access out of
bounds or a launch without end is never one: such a program is wrong, and the cause is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import gcd, lcm, prod
from typing import Any

from cudareduce.bench.asked import LESS, most_asked
from cudareduce.bench.session import Session
from cudareduce.bench.tries import budget
from cudareduce.launch.case import Case, Shape
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.reference import most_bounded
from cudareduce.verify.test_sets import Level, TestSet, recorded_shapes
from cudareduce.verify.verdict import HANGS, UNDECIDED, Verdict, is_synchronisation_fault, skipped

#: Causes that no precondition excuses, in the words of the emulator.
_BUGS = re.compile(
    rf"{HANGS}|invalid access|outside the array|past the end|wait at|different barriers"
    r"|not all threads|is not possible here|never set"
)
#: Seconds for which preconditions of all programs of a run are looked for.
_FOUND_S = 15.0
#: Inputs that every size is tried with: what fails with others hangs on values, not on the size.
_OF_EVERY_SIZE = re.compile(
    r"\b(?:exact|named|random|positive|rising|falling|one-sided|extremum|spread)\b"
)
#: Right at fewer sizes may be so by chance.
_FEWEST = 3
#: Every pattern is tried up to so many elements, two of them and one up to so many.
_EVERY_UP_TO, _SOME_UP_TO, _ONE_UP_TO = 1600, 2**17, 2**20
#: Sizes at which a part of a precondition is tried.
_MOST_TRIED = 10
#: Rounds in which further sizes are recorded, and sizes of each.
_ROUNDS, _MOST_SEARCHED = 2, 14

#: A case whose program is recorded with further numbers of elements; None if it cannot be.
Resized = Callable[[Case, Sequence[int]], Case | None]


def _is_bug(reason: str) -> bool:
    return is_synchronisation_fault(reason) or bool(_BUGS.search(reason))


def may_have_precondition(case: Case, verdict: Verdict) -> bool:
    """True if an external program failed for a cause that a precondition may exclude."""
    failed = verdict.outcome == "fail" and not _is_bug(verdict.reason)
    return case.kernel.program is not None and (failed or is_undecided(case, verdict))


def is_undecided(case: Case, verdict: Verdict) -> bool:
    """True if no input decides at large sizes, since the transform rounds each element."""
    return verdict.outcome == "skip" and UNDECIDED in verdict.reason and not case.asks.most


def with_precondition(session: Session, case: Case, resized: Resized) -> tuple[Case | None, str]:
    """The case with the weakest precondition under which it seems right, None if there is none;
    and the cause if it is a bug that shows as soon as everything else is excluded."""
    every = {
        name: value
        for name, value in most_asked(case.reduction, session.settings.nan).items()
        if _has_cause(case, name)
    }
    whole = _asking(case, **every)
    outcomes = dict(_outcomes(session, whole))
    failed = {shape: v for shape, v in outcomes.items() if v.outcome == "fail"}
    bug = next((v.reason for v in failed.values() if _is_bug(v.reason)), "")
    if bug:
        return None, bug
    good = [shape for shape, v in outcomes.items() if v.outcome == "pass"]
    values = any(not _OF_EVERY_SIZE.search(v.reason) for v in failed.values())
    sizes = (None if values else _size_condition(good, list(failed))) if failed else {}
    if sizes and sizes.get("most", case.block) < case.block:
        return None, ""  # no author documents that a block is too large for its input
    if sizes is None or len(good) < min(_FEWEST, len(outcomes)):
        return None, ""
    if sizes and whole.kernel.scope != "rows":
        sizes = _searched(session, whole, sizes, good, list(failed), resized)
        if sizes is None:
            return None, ""
    if any(v.outcome == "skip" and UNDECIDED in v.reason for v in outcomes.values()):
        sizes["most"] = min(sizes.get("most") or 2**62, most_bounded(case.reduction))
    found = _asking(whole, **sizes)
    for name in every:
        for less in LESS.get((name, every[name]), (False,)):
            eased = _asking(found, **{name: less})
            if _is_right(session, eased):
                found = eased
                break
    of_integers = case.reduction.dtype.kind == "int" and case.reduction.op.name in ("sum", "mean")
    if sizes and of_integers and (found.asks.within or found.asks.positive):
        return None, ""  # neither its sizes nor its elements alone explain what is wrong
    return found, ""


def _has_cause(case: Case, name: str) -> bool:
    """True if something in the kernel may be the cause of a condition on the elements of a sum of
    integers: a narrower type, or an unsigned one. Else it would excuse lost bits."""
    if case.reduction.dtype.kind == "float" or case.reduction.op.name not in ("sum", "mean"):
        return True
    narrower = r"\b(?:float|half|__half|char|short|u?int(?:8|16)_t)\d?\b"
    if case.reduction.dtype.size == 8:
        narrower += r"|\bu?int(?:32_t)?\b|\bunsigned\b"
    unsigned = r"\bunsigned|\bu(?:char|short|int|long)|\bsize_t"
    words = {"within": narrower, "positive": unsigned}
    code = re.sub(r"#.*|//.*|/\*[\s\S]*?\*/", "", case.kernel.text)
    return name not in words or re.search(words[name], code) is not None


def _searched(
    session: Session, case: Case, sizes: dict[str, int], good: list[Shape], failed: list[Shape],
    resized: Resized,
) -> dict[str, int] | None:  # fmt: skip
    """The condition on the size after further sizes, which are recorded for it, were tried."""
    found: dict[str, int] | None = sizes
    for _ in range(_ROUNDS):
        known = {n for n, _ in (*good, *failed)}
        wanted = [n for n in _between(case, found or {}, good, failed) if n not in known]
        other = resized(case, wanted[:_MOST_SEARCHED]) if wanted else None
        if other is None or other.kernel.program is None:
            break
        shapes = [shape for shape in other.kernel.program.shapes if shape[0] in wanted]
        tried = dict(_outcomes(session, other, shapes))
        good = [*good, *(shape for shape, v in tried.items() if v.outcome == "pass")]
        failed = [*failed, *(shape for shape, v in tried.items() if v.outcome == "fail")]
        found = _size_condition(good, failed)
        if not tried or found is None:
            break
    if found and "multiple" in found:
        return found | {"multiple": lcm(found["multiple"], _tile(case))}
    return found


def _tile(case: Case) -> int:
    """The elements of which a grid has a block for each whole number of them, and none for the
    rest; 1 if it is not so."""
    assert case.kernel.program is not None
    runs = [run for run in case.kernel.program.runs if run.launches]
    for items in (1, 2, 4, 8, 16, 32):
        tiles = [prod(run.launches[0].block) * items for run in runs]
        whole = [(run.n // tile, run.n % tile) for run, tile in zip(runs, tiles, strict=True)]
        blocks = [prod(run.launches[0].grid) for run in runs]
        several = [k for k, (count, _) in enumerate(whole) if count]
        if len({whole[k][0] for k in several}) < _FEWEST or len(set(tiles)) > 1:
            continue
        if all(blocks[k] == whole[k][0] for k in several) and any(rest for _, rest in whole):
            return tiles[0]
    return 1


def _between(
    case: Case, sizes: dict[str, int], good: list[Shape], failed: list[Shape]
) -> list[int]:
    """Sizes that tell a condition from a stronger one: odd multiples of powers of two from its
    divisor on; around the threads of a launch and around powers of two above its greatest."""
    assert case.kernel.program is not None
    divisor, most = sizes.get("multiple", 0), sizes.get("most", 0)
    wanted: list[int] = []
    if divisor:
        wanted += [(divisor << k) * odd for k in range(7) for odd in (5, 7)]
    if most:
        above = [n for n, _ in failed if n > most]
        end = min(above, default=most)
        tiles = {
            prod(step.grid) * prod(step.block) * items
            for run in case.kernel.program.runs for step in run.launches for items in (1, 2, 4, 8)
        }  # fmt: skip
        edges = sorted(tiles | {1 << k for k in range(5, 21)})
        exact = [n for edge in edges if most <= edge < end for n in (edge, edge + 1)]
        middle = [most + (end - most) * k // 4 for k in (1, 2, 3)]
        step = divisor or 1
        wanted += [n // step * step for n in (*exact[:8], *middle) if most < n // step * step < end]
    return [n for n in dict.fromkeys(wanted) if n <= _SOME_UP_TO]


def _asking(case: Case, **parts: Any) -> Case:
    """The case with other parts of its precondition."""
    asks = replace(case.kernel.asks, **parts)
    reduction = replace(case.reduction, within=DTYPES.get(asks.within))
    return replace(case, kernel=replace(case.kernel, asks=asks), reduction=reduction)


def _outcomes(
    session: Session, case: Case, shapes: Sequence[Shape] = ()
) -> Iterator[tuple[Shape, Verdict]]:
    """The verdict on each of these recorded sizes alone, of all without any."""
    limits = session.backend.limits()
    sets: dict[Case, list[TestSet]] = {}
    shape_of: dict[Case, Shape] = {}
    for n, rows in shapes or recorded_shapes(case, _ONE_UP_TO):
        own = replace(case, name=f"{n} x {rows}")
        level: Level = "full" if n * rows <= _EVERY_UP_TO else "some"
        level = level if n * rows <= _SOME_UP_TO else "least"
        sets[own] = [TestSet(case=own, shapes=((n, rows),), limits=limits, level=level)]
        shape_of[own] = n, rows
    for own, verdict in session.tries.verdicts(sets).items():
        yield shape_of[own], verdict


def _size_condition(good: list[Shape], failed: list[Shape]) -> dict[str, int] | None:
    """A multiple or a greatest number of elements that tells right sizes from wrong ones; None if
    neither does."""
    lengths = sorted({n for n, _ in good})
    wrong = sorted({n for n, _ in failed})
    rows_good, rows_wrong = {rows for _, rows in good}, {rows for _, rows in failed}
    if max(rows_good, default=0) > 1 and max(rows_good) < min(rows_wrong):
        return {"most_rows": max(rows_good)}
    if max(lengths, default=0) < min(wrong) and len(lengths) >= _FEWEST:
        return {"most": max(lengths)}
    for most in (0, min((n for n in wrong if n > max(lengths, default=0)), default=0)):
        left = [n for n in wrong if not most or n < most]
        divisors = [gcd(*lengths)] if lengths else []
        divisors += [1 << k for k in range(1, 21)] + [3 << k for k in range(12)]
        for divisor in (d for d in divisors if d > 1):
            whole = [n for n in lengths if n % divisor == 0]
            if len(whole) >= _FEWEST and not any(n % divisor == 0 for n in left):
                found = {"multiple": divisor}
                return found | ({"most": max(whole)} if most else {})
    return None


def _is_right(session: Session, case: Case) -> bool:
    shapes = recorded_shapes(case, _EVERY_UP_TO) or recorded_shapes(case, _SOME_UP_TO)
    step = max(1, len(shapes) // _MOST_TRIED)
    limits = session.backend.limits()
    test_set = TestSet(case=case, shapes=tuple(shapes[::step]), limits=limits, level="full")
    verdict = session.tries.verdict(case, [test_set])
    return verdict is not None and verdict.outcome == "pass" and bool(verdict.effort.sizes)


def preconditions(
    session: Session, verdicts: Mapping[Case, Verdict], resized: Resized
) -> tuple[dict[Case, Case], dict[Case, Verdict]]:
    """External programs that failed, with the precondition under which they seem right; and the
    verdicts of those whose cause was found to be a bug."""
    better: dict[Case, Case] = {}
    causes: dict[Case, Verdict] = {}
    left = [
        case
        for case, verdict in verdicts.items()
        if session.jobs.emulator is not None and may_have_precondition(case, verdict)
    ]
    deadline = budget(_FOUND_S)
    for k, case in enumerate(left):
        verdict = verdicts[case]
        with session.tries.one_of(len(left) - k, deadline) as own:
            found, cause = with_precondition(session, case, resized)
        if own.passed:
            why = f"cannot be decided in {_FOUND_S:g} s: {verdict.reason}; --n N tries fewer sizes"
            causes[case] = replace(skipped("time", why), effort=verdict.effort)
        elif found is not None and found != case:
            better[case] = found
        elif cause:
            causes[case] = replace(verdict, reason=cause, error=None, bound=None)
    return better, causes
