"""The condition on which a file without a header is right, where it is not right for every input.

What such a kernel asks of its input stands nowhere. So it is tried: at first with all that anybody
may ask, then with less and less, down to what it is wrong without.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm, prod
from typing import Any

from cudareduce.bench.asked import LESS, most_asked
from cudareduce.bench.reach import is_right_at, with_reach
from cudareduce.bench.session import Session
from cudareduce.bench.tries import budget, may_be_mended
from cudareduce.launch.case import Case
from cudareduce.library.asking import FOLDED, asking
from cudareduce.library.header import Grid, GridRule
from cudareduce.library.kernel import Kernel
from cudareduce.progress import say
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.reference import most_bounded
from cudareduce.verify.large_index import large_index_test_sets
from cudareduce.verify.test_sets import precondition_test_sets, tile_of
from cudareduce.verify.verdict import UNDECIDED, Verdict

#: Tiles of which the elements may have to be whole multiples: unrolled loops, loads of 16 bytes.
_TILES = 8
#: A number in a kernel's text up to this may divide the elements that it takes.
_LARGEST_DIVISOR = 2**13
#: Right at fewer sizes may be so by chance.
_FEWEST = 3
#: The most elements that an int counts.
_COUNTED = 2**31 - 1
#: Up to here launches themselves show what is wrong.
_FAR = 2**24
#: How often that is halved at most.
_SHIFTS = 4
#: So many seconds the conditions of all kernels of a run are looked for.
_FOUND_S = 30.0
#: Rows are taken by so many threads each, where a block takes several.
_ROWS_OF_BLOCK: dict[Grid, int] = {"thread_per_row": 1, "warp_per_row": 32}
_WARP = 32
#: The widest load, in elements.
_LOAD = 16


def conditioned(
    session: Session, verdicts: Mapping[Case, Verdict], *, quiet: bool
) -> dict[Case, Case]:
    """Cases that failed, with the condition on which they seem to be right; none of those for
    which there is none that a user may be asked to see to. Those of which no input decides far
    out, with as many elements as one does."""
    found = {
        case: decidable(case)
        for case, verdict in verdicts.items() if is_undecided(case, verdict)
    }  # fmt: skip
    tried = session.jobs.emulator is not None
    left = [
        case for case, verdict in verdicts.items()
        if tried and (may_be_mended(case, verdict)
                      or (case in found and _rounds(session, found[case])))
    ]  # fmt: skip
    deadline = budget(_FOUND_S)
    for k, case in enumerate(left):
        with session.tries.one_of(len(left) - k, deadline):
            other = next(filter(None, (_found(session, one) for one in _launches(case))), None)
        if other is not None and other != case:
            found[case] = other
            say(_changes(case, other), quiet)
    return found


def _rounds(session: Session, few: Case) -> bool:
    """Whether a case of `few` elements, of more of which no input decides, is wrong of these as
    well, or rounds each sum that its atomics form."""
    adds = few.kernel.finish == "atomic" and few.kernel.stored is not None
    return adds or not _is_right(session, few)


def joined(
    session: Session, verdicts: Mapping[Case, Verdict], better: Mapping[Case, Case],
    again: Mapping[Case, Verdict],
) -> dict[Case, Verdict]:  # fmt: skip
    """Verdicts with those `again` on cases as they are `better`; what is still wrong is told with
    the condition, or with how far it goes."""
    mended = {
        case: replace(verdict, reason=f"even if {' and '.join(case.asks.texts)}: {verdict.reason}")
        if verdict.outcome == "fail" and case.asks.texts else verdict
        for case, verdict in again.items()
    }  # fmt: skip
    for case, other in better.items():
        stands = mended.get(other)
        if other.asks.positive and stands and stands.outcome == "pass":  # what it begins at shows
            found = f"else {verdicts[case].reason.partition('; ')[0]}"
            reason = f"{found}; {stands.reason}" if stands.reason else found
            mended[other] = replace(stands, reason=reason)
        beyond = other.asks.most and is_undecided(case, verdicts[case])
        if beyond and stands and stands.outcome == "pass":
            mended[other] = replace(stands, reason=f"beyond them {UNDECIDED}")
    left = {
        case: _without_nan(session, case, verdict)
        for case, verdict in verdicts.items() if case not in better
    }  # fmt: skip
    every = with_reach(session, left) | mended
    return {case: session.tries.standing(case, verdict) for case, verdict in every.items()}


def _without_nan(session: Session, case: Case, verdict: Verdict) -> Verdict:
    """A verdict on a case that is wrong of NaNs as it is on other elements, where it is wrong of
    these as well: that is what has to be mended."""
    if "nan:" not in verdict.reason or not may_be_mended(case, verdict):
        return verdict
    asked = asking_most(session, case)
    other = session.tries.verdict(asked, precondition_test_sets(asked))
    if other is None or other.outcome != "fail" or "nan:" in other.reason:
        return verdict
    return replace(verdict, reason=f"even if none of its elements is NaN: {other.reason}")


def is_undecided(case: Case, verdict: Verdict) -> bool:
    """Whether no input decides of a case that is a guess where it has many elements, since what it
    makes of each is rounded."""
    open_ = verdict.outcome == "skip" and UNDECIDED in verdict.reason
    return open_ and case.kernel.guessed is not None and not (case.asks.most or case.asks.sizes)


def decidable(case: Case) -> Case:
    """The case with as many elements as an input decides of."""
    return _asking(case, most=most_bounded(case.reduction))


def _launches(case: Case) -> Iterator[Case]:
    """The case as it is launched, and in another grid where that was a guess."""
    yield case
    other = in_another_grid(case.kernel)
    if other is not None:
        yield replace(case, kernel=other)


def in_another_grid(kernel: Kernel) -> Kernel | None:
    """A kernel in the other grid that it may be meant for; None where its grid is known, or nothing
    in its text hangs on it."""
    known = "grid" not in (kernel.guessed or ()) or kernel.scope == "rows"
    known = known or kernel.grid in ("one", "fixed")  # as many as the file itself launches
    if known or "gridDim" not in kernel.text:
        return None
    grid: GridRule = "fill" if kernel.grid == "cover" else "cover"
    asks = replace(kernel.asks, covers=grid == "cover")
    return replace(kernel, grid=grid, exactly=False, asks=asks)


def _changes(case: Case, other: Case) -> str:
    """What is not launched as was said before."""
    old, new = case.kernel, other.kernel
    said = []
    if old.grid != new.grid:
        said.append(f"it is right with grid {new.grid}: --grid says which")
    if old.finish != new.finish:
        said.append(FOLDED)
    return f"{old.path}: {'; '.join(said)}" if said else ""


def _found(session: Session, case: Case) -> Case | None:
    """The case with the least that it asks of its input; None if it is wrong with all that it may
    ask. At first that is as much as a user can see to besides the number of elements."""
    most = most_asked(case.reduction, session.settings.nan)
    whole = _asking(case, **most)
    found = _with_fewest(session, whole) or _with_rows(session, whole)
    if found is None:
        return None
    for name in most:
        for less in LESS.get((name, most[name]), (False,)):
            eased = _asking(found, **{name: less})
            if _is_right(session, eased):
                found = eased
                break
    found = _as_many_as_last_takes(session, found)
    # An index may be a multiple of the element's, and so leave 31 bits before the count does; or
    # the text says how many it takes.
    counts = {_COUNTED >> shift for shift in range(_SHIFTS)}
    counts |= {k for k in found.kernel.constants if _FAR < k < _COUNTED}
    fewer = (_asking(found, most=k) for k in sorted(counts, reverse=True))
    return next((c for c in (found, *fewer) if not _is_wrong_far_off(session, c)), found)


def _as_many_as_last_takes(session: Session, case: Case) -> Case:
    """A case of kernels in a chain, whose last one is one block, with no more elements than that
    takes partials of at once, if it is right for these and wrong for a tile more."""
    most, last = tile_of(case), case.kernel
    while last.then is not None:
        last = last.then
        most *= last.block * last.items
    one = last is not case.kernel and (last.grid == "one" or last.fixed_grid == 1)
    if not one or most > _FAR or case.asks.sizes or (case.asks.most and case.asks.most <= most):
        return case
    beyond = is_right_at(session, case, most + tile_of(case))
    within = not beyond and is_right_at(session, case, most)
    return _asking(case, most=most) if within else case


def _is_wrong_far_off(session: Session, case: Case) -> bool:
    far = session.tries.verdict(case, large_index_test_sets(case))
    return far is not None and far.outcome == "fail"


def asking_most(session: Session, case: Case) -> Case:
    """The case asking of its input all that a user may be asked to see to."""
    asks = case.kernel.asks
    fewer = {} if asks.sizes or asks.multiple > 1 else {"multiple": _widest(case)}
    return _asking(case, **most_asked(case.reduction, session.settings.nan), **fewer)


def _with_fewest(session: Session, case: Case) -> Case | None:
    """The case with the least number that must divide its elements; None if there is none."""
    kernel = case.kernel
    if _is_right(session, case):
        return case
    if kernel.asks.sizes or kernel.asks.multiple > 1:
        return None  # the user has said it
    powers = _powers(_widest(case))

    def dividing(exponents: Sequence[int]) -> Case:
        primes = zip(powers, exponents, strict=True)
        return _asking(case, multiple=prod(prime**k for prime, k in primes))

    least = list(powers.values())
    if not _is_right(session, dividing(least)):
        return None
    for k, most in enumerate(least):

        def is_enough(fewer: int, k: int = k) -> bool:
            return _is_right(session, dividing([*least[:k], fewer, *least[k + 1 :]]))

        least[k] = bisect_left(range(most), x=True, key=is_enough)
    return dividing(least)


def _with_rows(session: Session, case: Case) -> Case | None:
    """The case with the least number that must divide its rows, where a block takes several of
    them, else with no more of these than one block takes; None if it is wrong even so."""
    several = _ROWS_OF_BLOCK.get(case.kernel.grid)
    if several is None or case.asks.rows > 1:
        return None
    rows = max(_WARP, case.block // several)
    if _is_right(session, _asking(case, rows=rows)):
        powers = range(rows.bit_length())
        least = bisect_left(
            powers, x=True, key=lambda k: _is_right(session, _asking(case, rows=1 << k))
        )
        return _asking(case, rows=min(1 << least, rows))
    if case.kernel.turns:  # which means to go on to more
        return None
    most = case.block // several
    alone = _asking(case, most_rows=most)
    return alone if most > 1 and _is_right(session, alone) else None  # of one it is no condition


def _widest(case: Case) -> int:
    """A multiple of all that may have to divide the elements of an input."""
    written = [k for k in case.kernel.constants if k <= _LARGEST_DIVISOR]
    widest = lcm(_TILES * tile_of(case), _LOAD)
    for number in reversed(written):
        if lcm(widest, number) <= _LARGEST_DIVISOR:
            widest = lcm(widest, number)
    return widest


def _powers(number: int) -> dict[int, int]:
    """The prime factors of a number, each with its exponent, the largest first."""
    found: dict[int, int] = {}
    prime = 2
    while number > 1:
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1
    return dict(sorted(found.items(), reverse=True))


def _asking(case: Case, **parts: Any) -> Case:
    """The case with other parts of its condition."""
    asks = replace(case.kernel.asks, **parts)
    reduction = replace(case.reduction, within=DTYPES.get(asks.within))
    return replace(case, kernel=asking(case.kernel, asks), reduction=reduction)


def _is_right(session: Session, case: Case) -> bool:
    verdict = session.tries.verdict(case, precondition_test_sets(case))
    if verdict is None or verdict.outcome != "pass":
        return False
    tried = [n for n, _ in verdict.effort.sizes if n]
    return len(tried) >= min(_FEWEST, len(case.asks.sizes) or _FEWEST)
