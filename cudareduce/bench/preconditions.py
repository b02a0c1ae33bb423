"""Infer the weakest precondition under which a failing external program is right.

Preconditions are what an author would document. A data race, barrier divergence, an access out of
bounds or a launch without end is never one: such a program is wrong, and the cause is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import gcd, lcm, prod
from typing import Any

from cudareduce.bench.session import Session
from cudareduce.budget import Deadline
from cudareduce.catalog.condition import Nan
from cudareduce.catalog.front_matter import read_source
from cudareduce.catalog.program import Address, Value, WriteStep
from cudareduce.errors import UsageError
from cudareduce.external.files import FILE_S, ExternalFiles
from cudareduce.external.trial import budget
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.machine import cpu_count
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import digits, varies
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import max_bounded_size
from cudareduce.verify.test_sets import Level, TestSet, recorded_shapes, watched_test_set
from cudareduce.verify.verdict import (
    ADDS,
    HANGS,
    UNDECIDED,
    Verdict,
    is_synchronisation_fault,
    skipped,
)

#: Messages of the emulator on faults for which no precondition is inferred.
_BUGS = re.compile(
    rf"{HANGS}|invalid access|outside the array|past the end|wait at|different barriers"
    r"|not all threads|is not possible here|never set"
)
#: An access outside of an array of fixed size: a launch that is inferred may be too large for it.
_FIXED_ARRAY = re.compile(r"outside the array|invalid access at \(nil\), in no kernel")
#: Message of the emulator on an access outside of a kernel argument.
_BEHIND = re.compile(r"past the end of argument (\d+)")
#: The fraction of the remaining time for one program, since another verification follows.
_ONE_PROGRAM = 2 / 3
#: Inputs with which every size is tested. A kernel that fails only with others depends on values,
#: not on the size.
_OF_EVERY_SIZE = re.compile(
    r"\b(?:exact|named|random|positive|rising|falling|one-sided|extremum|spread)\b"
)
#: Fewer right sizes may be coincidence.
_FEWEST = 3
#: A divisor explains what fails if at most so many more of the other sizes are right.
_MOST_BY_LUCK = 4
#: Largest number of elements for tests with every pattern, with two patterns, and with one.
_EVERY_UP_TO, _SOME_UP_TO, _ONE_UP_TO = 1600, 2**17, 2**20
#: A large multiple of all divisors of the search: powers of two, and three times them.
_LARGE = 3 << 18
#: Number of sizes at which a part of a precondition is tested, in addition to all small ones; and
#: the most of them in the slower build.
_MOST_TRIED, _TINY, _MOST_WATCHED = 10, 40, 5
#: Sizes that are always tested: multiples of common block sizes.
_BLOCKS = (256, 512, 1024)
#: Rounds in which further sizes are recorded, and sizes of each.
_ROUNDS, _MOST_SEARCHED = 2, 14

#: Seconds of one experiment.
_TRIED_S = 2.5
_SUMS = ("sum", "mean")
#: The weaker forms of a condition on the elements, the weakest first.
_WEAKER: dict[tuple[str, Any], tuple[Any, ...]] = {
    ("nan", "none"): ("propagate", "drop"),
    ("positive", "normal"): ("", "positive"),
    ("positive", "positive"): ("",),
    ("within", "float32"): ("", "int32"),
    ("within", "float16"): ("",),
    ("within", "bfloat16"): ("",),
}


def _strongest(reduction: Reduction, nan: Nan | None) -> dict[str, Any]:
    """All conditions on the elements that an author may document. `nan` is the option --nan."""
    parts, name, kind = dict[str, Any](), reduction.op.name, reduction.dtype.kind
    if name in ("max", "argmax") and kind != "uint":
        parts |= {"positive": "normal" if kind == "float" else "positive"}
    if name.endswith(("min", "max")) and kind == "float":
        parts |= {"finite": True} | ({} if nan and name in ("min", "max") else {"nan": "none"})
    if reduction.op.indexed:
        parts |= {"any": True}
    if name in _SUMS:
        parts |= {"bounded": True} if kind == "float" else {}
        parts |= {"within": narrower} if (narrower := _narrower(reduction)) else {}
        parts |= {"positive": "positive"} if kind == "int" else {}
    return parts | {"aligned": True}


def _narrower(reduction: Reduction) -> str:
    """The narrowest type in which a kernel may keep partial sums; "" if there is none."""
    if reduction.dtype.kind == "float":
        return reduction.dtype.name if reduction.dtype != reduction.acc else ""
    return "float32"


def timed_input(pattern: str, reduction: Reduction, cases: Sequence[Case]) -> tuple[str, Reduction]:
    """The pattern and reduction of an input that meets the preconditions of all cases."""
    narrow = [case.reduction.within for case in cases if case.reduction.within]
    within = min(narrow, key=digits, default=None)
    positive = any(case.precondition.positive for case in cases) and reduction.op.name in _SUMS
    pattern = "positive" if positive and pattern == "random" else pattern
    return pattern, replace(reduction, within=within)


class _Experiments:
    """Verifies cases on single test sets in child processes, until a deadline."""

    def __init__(self, session: Session, deadline: Deadline) -> None:
        self._session, self.deadline = session, deadline

    def verdict(self, case: Case, test_set: TestSet) -> Verdict | None:
        """The verdict on one test set; None if there is no time, or nothing to run."""
        return self.verdicts({case: test_set}).get(case)

    def verdicts(self, sets: Mapping[Case, TestSet]) -> dict[Case, Verdict]:
        """The verdicts on one test set each, as far as there is time."""
        session = self._session
        limit_s = session.settings.time_limit_s or _TRIED_S
        queues = {
            case: [
                replace(job, limit_s=min(job.limit_s, limit_s), optional=False)
                for job in session.jobs.of(Prepared(case, {}, {}, {}), (), (own,))
            ]
            for case, own in sets.items() if _varies(case)
        }  # fmt: skip
        queues = {case: jobs for case, jobs in queues.items() if jobs}
        if self.deadline.passed:
            return {}
        return dict(session.isolation.verify(queues, cpu_count(), self.deadline, lambda _: None))


def _varies(case: Case) -> bool:
    """True unless the transform is constant on the test inputs."""
    with suppress(UsageError):
        return not case.reduction.map or varies(
            case.reduction, positive=bool(case.precondition.positive)
        )
    return True


def with_races(session: Session, verdicts: Mapping[Case, Verdict]) -> dict[Case, Verdict]:
    """The verdicts; a wrong result of an external or additional kernel with the data race that is
    found at the same sizes, if there is one."""
    if session.jobs.emulator is None:
        return dict(verdicts)
    experiments = _Experiments(session, session.settings.deadline)
    found = dict(verdicts)
    for case, verdict in verdicts.items():
        known = verdict.outcome != "fail" or is_synchronisation_fault(verdict.reason)
        if known or not case.kernel.foreign:
            continue
        limits = session.backend.limits()
        watched = experiments.verdict(case, watched_test_set(case, verdict.effort.sizes, limits))
        if watched is not None and is_synchronisation_fault(watched.reason):
            found[case] = replace(verdict, reason=watched.reason, error=None, bound=None)
    return found


def _is_bug(case: Case, reason: str) -> bool:
    if is_synchronisation_fault(reason):
        return True
    excused = _is_too_large(case, reason) or _reads_partial_tile(case, reason)
    return bool(_BUGS.search(reason)) and not excused


def _is_too_large(case: Case, reason: str) -> bool:
    """True if the inferred launch of a kernel may be the cause: it needs larger arrays."""
    program = case.kernel.program
    return program is not None and program.inferred and bool(_FIXED_ARRAY.search(reason))


def _reads_partial_tile(case: Case, reason: str) -> bool:
    """True if a kernel reads past the end of its input that receives no number of elements: it
    takes whole tiles only, as its author knows."""
    behind, program = _BEHIND.search(reason), case.kernel.program
    if behind is None or program is None or len(program.texts) > 1:
        return False
    index = int(behind[1])
    values: set[tuple[Value, ...]] = set()
    for run in program.runs:
        readers = [
            step for step in run.launches
            if step.arguments[index : index + 1] == (Address("in"),)
        ]  # fmt: skip
        if not readers or any(isinstance(step, WriteStep) for step in run.steps):
            return False
        values |= {tuple(a for a in one.arguments if isinstance(a, Value)) for one in readers}
    return len(values) == 1


def _may_have_precondition(case: Case, verdict: Verdict) -> bool:
    """True if an external program failed for a cause that a precondition may exclude."""
    other_operator = verdict.reason.startswith(ADDS)
    failed = verdict.outcome == "fail" and not (other_operator or _is_bug(case, verdict.reason))
    return case.kernel.program is not None and (failed or _is_undecided(case, verdict))


def _is_undecided(case: Case, verdict: Verdict) -> bool:
    """True if no input decides at large sizes, since the transform rounds each element."""
    return verdict.outcome == "skip" and UNDECIDED in verdict.reason and not case.precondition.most


def _with_precondition(
    session: Session, experiments: _Experiments, case: Case, files: ExternalFiles, reason: str
) -> tuple[Case | None, str]:
    """The case with the weakest precondition under which it seems right, None if there is none;
    and the cause if it is a bug that shows as soon as everything else is excluded. `reason` is why
    it failed."""
    every = {
        name: value
        for name, value in _strongest(case.reduction, session.settings.nan).items()
        if _has_cause(case, name)
    }
    whole = _asking(case, **every)
    watched = _is_too_large(case, reason)  # only that build finds indices outside of arrays
    outcomes = dict(_outcomes(session, experiments, whole, watched=watched))
    failed = {shape: v for shape, v in outcomes.items() if v.outcome == "fail"}
    bug = next((v.reason for v in failed.values() if _is_bug(case, v.reason)), "")
    if bug:
        return None, bug
    good = [shape for shape, v in outcomes.items() if v.outcome == "pass"]
    values = any(
        not _OF_EVERY_SIZE.search(v.reason)
        and not _reads_partial_tile(case, v.reason)
        and not _is_too_large(case, v.reason)
        for v in failed.values()
    )
    sizes = (None if values else _size_condition(good, list(failed))) if failed else {}
    too_large = next((v.reason for v in failed.values() if _is_too_large(case, v.reason)), "")
    if too_large and (not sizes or "multiple" in sizes):
        return None, too_large
    fits_rows = too_large and case.kernel.scope == "rows"
    if sizes and sizes.get("most", case.block) < case.block and not fits_rows:
        return None, ""  # no author documents that a block is too large for its input
    if sizes and "most" in sizes and (bug := _bug_beyond(case, good, failed)):
        return None, bug
    if sizes is None and (only := _one_block(case, good)):
        return _asking(case, sizes=only), ""
    if sizes is None or len(good) < min(_FEWEST, len(outcomes)):
        return None, ""
    found, clear = _asking(whole, **sizes), sizes.get("most", 2**62) // 4
    for name in every:
        for weaker in _WEAKER.get((name, every[name]), (False,)):
            eased = _asking(found, **{name: weaker})
            if _is_right(session, experiments, eased, clear, watched=name == "aligned"):
                found = eased
                break
    requested = {
        name: getattr(case.precondition, name) for name in ("multiple", "most", "most_rows")
    }
    eased = _asking(found, **requested)
    if sizes and eased != whole:  # with fewer conditions on the elements more sizes may fail
        again = dict(_outcomes(session, experiments, eased, watched=watched))
        right = [shape for shape, v in again.items() if v.outcome == "pass"]
        wrong = {shape: v for shape, v in again.items() if v.outcome == "fail"}
        if (stronger := _size_condition(right, list(wrong)) if wrong else None) is not None:
            sizes, good, failed, whole = stronger, right, wrong, eased
            found = _asking(eased, **sizes)
    if sizes and whole.kernel.scope != "rows":
        sizes = _searched(session, experiments, whole, sizes, good, list(failed), files)
        if sizes is None:
            return None, ""
    if any(v.outcome == "skip" and UNDECIDED in v.reason for v in outcomes.values()):
        sizes["most"] = min(sizes.get("most") or 2**62, max_bounded_size(case.reduction))
    divisor = lcm(requested["multiple"], sizes.get("multiple", 1))
    found = _asking(found, **requested | sizes | {"multiple": divisor})
    if excluded := _own_size_excluded(session, experiments, case, found, failed):
        return None, excluded
    of_integers = case.reduction.dtype.kind == "int" and case.reduction.op.name in ("sum", "mean")
    if sizes and of_integers and (found.precondition.within or found.precondition.positive):
        return None, ""  # neither its sizes nor its elements alone explain what is wrong
    return found, ""


def _one_block(case: Case, good: Sequence[Shape]) -> tuple[int, ...]:
    """(n,) if n alone is correct and the program launches one block of n threads; else ()."""
    program = case.kernel.program
    if program is None or len(good) != 1 or (run := program.run(*good[0])) is None:
        return ()
    n = good[0][0]
    alone = all((prod(one.grid), prod(one.block)) == (1, n) for one in run.launches)
    return (n,) if alone and n > 1 else ()


def _own_size_excluded(
    session: Session, experiments: _Experiments, case: Case, found: Case,
    failed: Mapping[Shape, Verdict],
) -> str:  # fmt: skip
    """Why a program is wrong at the size in its file, which the precondition that was found
    excludes; "" if it is not."""
    own = case.kernel.program.own if case.kernel.program else None
    if own is None or found.precondition.why_not(*own) is None:
        return ""
    if prod(own) > _ONE_UP_TO:
        reason = next((verdict.reason for verdict in failed.values()), "")
        return f"{reason}; n = {prod(own)}, the size in the file, is wrong, too" if reason else ""
    verdict = failed.get(own) or dict(_outcomes(session, experiments, case, [own])).get(own)
    return verdict.reason if verdict and verdict.outcome == "fail" else ""


def _bug_beyond(case: Case, good: Sequence[Shape], failed: Mapping[Shape, Verdict]) -> str:
    """Why no author would document a greatest number of elements: elements beyond it are lost in
    regular turns, or only a single block works where larger launches have several. Empty if an
    author may."""
    program = case.kernel.program
    assert program is not None

    def blocks(shape: Shape) -> int:
        run = program.run(*shape)
        return prod(run.launches[0].grid) if run is not None and run.launches else 0

    alone = max(map(blocks, good), default=0) == 1
    return next(
        (
            verdict.reason for shape, verdict in sorted(failed.items())
            if " of every " in verdict.reason or (alone and blocks(shape) > 1)
        ),
        "",
    )  # fmt: skip


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
    session: Session, experiments: _Experiments, case: Case, sizes: dict[str, int],
    good: list[Shape], failed: list[Shape], files: ExternalFiles,
) -> dict[str, int] | None:  # fmt: skip
    """The condition on the size after further sizes, which are recorded for it, were tried."""
    found: dict[str, int] | None = sizes
    for _ in range(_ROUNDS):
        known = {n for n, _ in (*good, *failed)}
        wanted = [n for n in _between(case, found or {}, good, failed) if n not in known]
        other = _resized(files, case, wanted[:_MOST_SEARCHED]) if wanted else None
        if other is None or other.kernel.program is None:
            break
        shapes = [shape for shape in other.kernel.program.shapes if shape[0] in wanted]
        tried = dict(_outcomes(session, experiments, other, shapes))
        good = [*good, *(shape for shape, v in tried.items() if v.outcome == "pass")]
        failed = [*failed, *(shape for shape, v in tried.items() if v.outcome == "fail")]
        found = _size_condition(good, failed)
        if not tried or found is None:
            break
    if found and "multiple" in found:
        return found | {"multiple": lcm(found["multiple"], _tile(case))}
    return found


def _tile(case: Case) -> int:
    """The tile size if the grid has one block per whole tile and none for the rest, else 1."""
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
    """Sizes that tell a condition from a stronger one: a large multiple of its divisor, and odd
    multiples of powers of two; around the threads of a launch and powers of two above its most."""
    assert case.kernel.program is not None
    divisor, most = sizes.get("multiple", 0), sizes.get("most", 0)
    wanted: list[int] = []
    # One large size: a counter in a narrow type overflows only there.
    large = _LARGE // (divisor or 1) * (divisor or 1)
    if divisor:
        wanted += [large] if not most else []
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
    return [n for n in dict.fromkeys(wanted) if n <= _SOME_UP_TO or n == large]


def _asking(case: Case, **parts: Any) -> Case:
    """The case with other parts of its precondition."""
    precondition = replace(case.kernel.precondition, **parts)
    reduction = replace(case.reduction, within=DTYPES.get(precondition.within))
    return replace(
        case, kernel=replace(case.kernel, precondition=precondition), reduction=reduction
    )


def _outcomes(
    session: Session, experiments: _Experiments, case: Case, shapes: Sequence[Shape] = (), *,
    watched: bool = False,
) -> Iterator[tuple[Shape, Verdict]]:  # fmt: skip
    """The verdict on each of these recorded sizes alone, of all without any."""
    limits = session.backend.limits()
    sets: dict[Case, TestSet] = {}
    shape_of: dict[Case, Shape] = {}
    for n, rows in shapes or recorded_shapes(case, _ONE_UP_TO):
        own = replace(case, name=f"{n} x {rows}")
        level: Level = "full" if n * rows <= _EVERY_UP_TO else "some"
        level = level if n * rows <= _SOME_UP_TO else "least"
        sets[own] = TestSet(
            case=own, shapes=((n, rows),), limits=limits, level=level, watched=watched
        )
        shape_of[own] = n, rows
    for own, verdict in experiments.verdicts(sets).items():
        yield shape_of[own], verdict


def _size_condition(good: list[Shape], failed: list[Shape]) -> dict[str, int] | None:
    """A divisor or a maximum of the number of elements that separates right sizes from wrong ones,
    or None."""
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
            by_luck = len([n for n in lengths if n % divisor and (not most or n < most)])
            if by_luck > _MOST_BY_LUCK + len(left):  # it does not explain what fails
                continue
            if len(whole) >= _FEWEST and not any(n % divisor == 0 for n in left):
                found = {"multiple": divisor}
                return found | ({"most": max(whole)} if most else {})
    return None


def _is_right(
    session: Session, experiments: _Experiments, case: Case, most: int, *, watched: bool
) -> bool:
    """True if a case is right at some of its sizes, rather of at most `most` elements; only the
    `watched` build detects misaligned loads."""
    shapes = recorded_shapes(case, _EVERY_UP_TO) or recorded_shapes(case, _SOME_UP_TO)
    shapes = tuple(shape for shape in shapes if prod(shape) <= most) or shapes
    step = max(1, len(shapes) // _MOST_TRIED)
    few = [
        shape for k, shape in enumerate(shapes)
        if prod(shape) <= _TINY or k % step == 0 or prod(shape) in _BLOCKS
    ]  # fmt: skip
    if watched:  # a slower build, and alignment does not depend on the size
        few = few[:: max(1, -(-len(few) // _MOST_WATCHED))]
    limits = session.backend.limits()
    level: Level = "some" if watched else "full"
    test_set = TestSet(case=case, shapes=tuple(few), limits=limits, level=level, watched=watched)
    verdict = experiments.verdict(case, test_set)
    return verdict is not None and verdict.outcome == "pass" and bool(verdict.effort.sizes)


def preconditions(
    session: Session, verdicts: Mapping[Case, Verdict], files: ExternalFiles
) -> tuple[dict[Case, Case], dict[Case, Verdict]]:
    """External programs that failed, with the precondition under which they seem right; and the
    verdicts of those whose cause was found to be a bug."""
    better: dict[Case, Case] = {}
    causes: dict[Case, Verdict] = {}
    left = [
        case
        for case, verdict in verdicts.items()
        if session.jobs.emulator is not None and _may_have_precondition(case, verdict)
    ]
    whole = session.settings.deadline
    whole = whole if whole.seconds is not None else budget(len(left) * FILE_S)
    for k, case in enumerate(left):
        verdict = verdicts[case]
        experiments = _Experiments(session, whole.share((len(left) - k) / _ONE_PROGRAM))
        found, cause = _with_precondition(session, experiments, case, files, verdict.reason)
        if experiments.deadline.passed:
            why = f"cannot be decided in time: {verdict.reason}; --n N tries fewer sizes"
            causes[case] = replace(skipped("time", why), effort=verdict.effort)
        elif found is not None and found != case:
            better[case] = found
        elif cause:
            causes[case] = replace(verdict, reason=cause, error=None, bound=None)
    return better, causes


def _resized(files: ExternalFiles, case: Case, sizes: Sequence[int]) -> Case | None:
    """The case with its program recorded at further numbers of elements; None if it cannot be."""
    take = replace(files, sizes=sizes, shapes=(), tell=_ignore, left_out=[])
    path, old = case.kernel.path, case.kernel.program
    with suppress(UsageError, OSError):
        for kernel in take(path, read_source(path)):
            new = kernel.program
            if new and old and kernel.id == case.kernel.id and new.kernels == old.kernels:
                return replace(case, kernel=replace(case.kernel, program=new, text=kernel.text))
    return None


def _ignore(_words: str) -> None:
    pass


def with_conditions(
    verdicts: Mapping[Case, Verdict], better: Mapping[Case, Case], again: Mapping[Case, Verdict]
) -> dict[Case, Verdict]:
    """The verdicts, those of cases with a precondition replaced by the verdicts `again` on them."""
    found = {case: verdict for case, verdict in verdicts.items() if case not in better}
    for case, verdict in again.items():
        if verdict.outcome == "fail" and case.precondition.texts:
            reason = f"even if {' and '.join(case.precondition.texts)}: {verdict.reason}"
            verdict = replace(verdict, reason=reason)
        found[case] = verdict
    for case, other in better.items():
        right = found.get(other)
        if right is None or right.outcome != "pass":
            continue
        if (
            other.precondition.positive
        ):  # the wrong result shows the value that an extreme starts at
            reason = f"else {verdicts[case].reason.partition('; ')[0]}"
            reason = f"{reason}; {right.reason}" if right.reason else reason
            found[other] = replace(right, reason=reason)
        elif other.precondition.most and _is_undecided(case, verdicts[case]):
            found[other] = replace(right, reason=f"beyond them {UNDECIDED}")
    return found
