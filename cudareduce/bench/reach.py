"""How far a kernel goes that is wrong: what it is right for may be one size, or all up to one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import lcm

from cudareduce.bench.session import Session
from cudareduce.bench.tries import budget
from cudareduce.launch.case import Case
from cudareduce.library.condition import Condition
from cudareduce.library.mapped import likely_maps
from cudareduce.reduction.operators import Map
from cudareduce.verify.test_sets import race_test_sets, size_test_set, tile_of
from cudareduce.verify.verdict import WRONG_RESULT, Verdict, is_synchronisation_fault

#: A wrong result with its cause.
_EXPLAINED = re.compile(rf"{WRONG_RESULT}.*: .*(?:added|overwritten)")
#: Sizes that are tried besides the numbers in a kernel's text: one that is right for powers of two
#: alone is not right up to any.
_LADDER = tuple(2**k - less for k in range(1, 19) for less in (0, 1))
#: No number in a kernel's text beyond is worth the while.
_MOST = 2**23
_WARP = 32
#: No number up to here says how many elements there are.
_FEWEST = 3
#: So many of the maps that a text may be meant for are tried with its numbers.
_MAPS = 4
#: So many seconds it is looked for how far all kernels of a run go.
_REACH_S = 25.0
#: The size in a verdict's words.
_SIZE = re.compile(r"\bn = (\d+)")


def with_reach(session: Session, verdicts: Mapping[Case, Verdict]) -> dict[Case, Verdict]:
    """Verdicts on cases whose files have no header, with how far those go that failed, where that
    can be said in a few words."""
    failed = [
        case for case, verdict in verdicts.items()
        if verdict.outcome == "fail" and case.kernel.guessed is not None
    ]  # fmt: skip
    found, deadline = dict(verdicts), budget(_REACH_S)
    for k, case in enumerate(failed):
        with session.tries.one_of(len(failed) - k, deadline) as share:
            told = _told(session, case, verdicts[case])
            found[case] = verdicts[case] if share.passed else told
    return found


def _told(session: Session, case: Case, verdict: Verdict) -> Verdict:
    if session.jobs.emulator is None or is_synchronisation_fault(verdict.reason):
        return verdict
    reach = _reach(session, case, verdict)
    if reach is None and case.kernel.whole_tiles and "block" in (case.kernel.guessed or ()):
        reach = _reach(session, replace(case, block=_WARP), verdict)
        reach = reach and f"{reach}, in a block of {_WARP}"
    reach = reach or _of_a_map(session, case)
    if reach:
        return replace(verdict, reason=f"{reach}; {verdict.reason}")
    race = _race(session, case)
    return replace(verdict, reason=race, error=None, bound=None) if race else verdict


def _reach(session: Session, case: Case, verdict: Verdict) -> str | None:
    """What a case is right for that failed, in words; None if that is none or many sizes, or one
    that nobody would launch it for."""
    step, tried = case.asks.multiple, [n for n, _ in verdict.effort.sizes]
    sizes = {
        n for n in (*_LADDER, *case.kernel.constants, *tried) if 1 < n <= _MOST and n % step == 0
    }  # fmt: skip
    right = [is_right_at(session, case, n) for n in sorted(sizes)]
    count = sum(right)
    if all(right) or (count > 1 and not all(right[:count])):
        return None
    last = max((n for n, good in zip(sorted(sizes), right, strict=True) if good), default=_FEWEST)
    # Who has no count may have a number that is no whole tile.
    others = (n for n in case.kernel.constants if last < n <= _MOST and n % step)
    own = next((_alone(n) for n in others if is_right_at(session, case, n)), None)
    if own or not count:
        return own
    if count == 1:
        named = last > _FEWEST and last in case.kernel.constants
        return _alone(last) if last % _WARP == 0 or named else None
    below, above = (n // step for n in sorted(sizes)[count - 1 : count + 1])
    beyond = bisect_left(
        range(below + 1, above), x=True, key=lambda k: not is_right_at(session, case, k * step)
    )
    most = (below + beyond) * step
    wrong = _SIZE.search(verdict.reason)
    return None if wrong and int(wrong[1]) <= most else f"right up to n = {most}"


def _race(session: Session, case: Case) -> str:
    """The race of a case on whole tiles, which is why it is wrong there as well; empty if there is
    none."""
    if case.asks.sizes or case.kernel.scope == "rows":
        return ""
    asks = replace(case.asks, multiple=lcm(tile_of(case), case.asks.multiple))
    whole = replace(case, kernel=replace(case.kernel, asks=asks))
    found = session.tries.verdict(whole, [next(race_test_sets(whole))])
    told = found is not None and (
        is_synchronisation_fault(found.reason) or _EXPLAINED.search(found.reason)
    )
    return found.reason if found is not None and told else ""


def _alone(n: int, mapped: Map | None = None) -> str:
    of, option = (
        (f" of {mapped.expression}", f"--map '{mapped.expression}' ") if mapped else ("", "")
    )
    return f"right{of} for n = {n} alone, which {option}--sizes-only --n {n} says"


def _of_a_map(session: Session, case: Case) -> str | None:
    """What a case is right for that makes something of its elements, and takes as many as its text
    says; None if it does not."""
    kernel = case.kernel
    if "map" not in (kernel.guessed or ()) or case.reduction.map:
        return None
    likely = likely_maps(kernel.other_maps, kernel.text)
    sizes = [n for n in kernel.constants if _FEWEST < n <= _MOST]
    for mapped, n in product(likely[:_MAPS], sizes):
        reduction = replace(case.reduction, map=mapped)
        other = replace(case, kernel=replace(kernel, map=mapped), reduction=reduction)
        if is_right_at(session, other, n) and not is_right_at(session, other, n - 1):
            return _alone(n, mapped)
    return None


def is_right_at(session: Session, case: Case, n: int) -> bool:
    """Whether it is right for ordinary elements of this number."""
    alone = replace(case.kernel, asks=Condition(sizes=(n,)))
    net = size_test_set(replace(case, kernel=alone), session.backend.limits())
    verdict = session.tries.verdict(case, [net])
    return verdict is not None and verdict.outcome == "pass"
