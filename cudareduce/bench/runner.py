"""The loop over reductions and sizes: verify every case, time those that are right."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cudareduce.backends.protocol import Monitor
from cudareduce.bench.cases import cases
from cudareduce.bench.edges import at_edges, parts_to_verify
from cudareduce.bench.group import Group, Times
from cudareduce.bench.preconditions import preconditions, with_conditions, with_races
from cudareduce.bench.session import Session
from cudareduce.bench.trial import Trial
from cudareduce.catalog.registry import Choice
from cudareduce.errors import EnvironmentProblem, OutOfMemory
from cudareduce.external.files import ExternalFiles
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.reduction.operators import Reduction
from cudareduce.verify.verdict import Verdict, skipped

#: So many elements take as long to verify, and to upload for every context, as a small size takes
#: to be timed: on an H200 two kernels took 6.1 s for nine rounds at up to 2^24, and at 2^26 7.6 s
#: after 1.8 s of verification.
_MOVED_IN_A_TIMING = 2**28


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One reduction of a run: its cases, in the order asked for, and a group for each size."""

    cases: tuple[Case, ...]
    runnable: tuple[Case, ...]
    groups: tuple[Group, ...]
    interrupted: bool


def measured(
    session: Session, choices: Sequence[Choice], files: ExternalFiles | None = None
) -> list[Part]:
    """Verify and time every choice, reduction by reduction; Ctrl-C ends it with what it has.
    `files` makes the kernels of external files, for preconditions."""
    timed = session.backend.timed()
    runner = _Runner(session, timed.monitor() if timed else None, files)
    parts: list[Part] = []
    found = cases(session, choices)
    runnable = [case for some in found.values() for case, verdict in some if verdict is None]
    session.verify_ahead(parts_to_verify(session, [runner.sized(case) for case in runnable]))
    for k, (reduction, some) in enumerate(found.items()):
        parts.append(runner.part(reduction, some, len(found) - k - 1))
        if parts[-1].interrupted:
            break
    return parts


class _Runner:
    """What all parts of one run share."""

    def __init__(
        self, session: Session, monitor: Monitor | None, files: ExternalFiles | None
    ) -> None:
        self._files = files
        self._session, self._settings, self._monitor = session, session.settings, monitor

    def part(
        self,
        reduction: Reduction,
        cases: Sequence[tuple[Case, Verdict | None]],
        reductions_ahead: int,
    ) -> Part:
        """All sizes of one reduction; `reductions_ahead` share the time that is left."""
        cases = [(self.sized(case), verdict) for case, verdict in cases]
        runnable = tuple(case for case, verdict in cases if verdict is None)
        order = tuple(case for case, _ in cases)
        groups: list[Group] = []
        interrupted = False
        try:
            session = self._session
            prepared, edge_verdicts = at_edges(session, runnable)
            better, causes = dict[Case, Case](), dict[Case, Verdict]()
            if not session.interrupted:
                edge_verdicts = with_races(session, edge_verdicts)
            if self._files is not None and not session.interrupted:
                better, causes = preconditions(session, edge_verdicts, self._files)
            better = {case: self.sized(other) for case, other in better.items()}
            mended, again = at_edges(session, tuple(better.values())) if better else ([], {})
            prepared = [*(one for one in prepared if one.case not in better), *mended]
            runnable, order = (
                tuple(better.get(case, case) for case in some) for some in (runnable, order)
            )
            verdicts = {case: verdict for case, verdict in cases if verdict}
            verdicts |= with_conditions({**edge_verdicts, **causes}, better, again)
            sizes = self._sizes(order)
            for k, n in enumerate(sizes):
                ahead = [*sizes[k + 1 :], *sizes * reductions_ahead]
                here = [one for one in prepared if n in self._settings.sizes_of(one.case)]
                known = {
                    case: verdict
                    for case, verdict in verdicts.items()
                    if n in self._settings.sizes_of(case)
                }
                groups.append(self._group(reduction, n, here, known, ahead))
                if groups[-1].interrupted:
                    interrupted = True
                    break
        except KeyboardInterrupt:
            interrupted = True
        return Part(
            cases=order, runnable=runnable, groups=tuple(groups), interrupted=interrupted,
        )  # fmt: skip

    def sized(self, case: Case) -> Case:
        """The case; an external program that was not recorded at the default sizes is measured at
        its largest one."""
        program = case.kernel.program
        if program is None or not self._settings.usual_sizes:
            return case
        sizes = [n for n, rows in program.shapes if rows == 1]
        if not sizes or set(sizes) & set(self._settings.sizes):
            return case
        return replace(case, only=frozenset([max(sizes)]))

    def _sizes(self, cases: Sequence[Case]) -> list[int]:
        """The sizes of a run at which there are cases, and those that some have of their own."""
        own = {n for case in cases for n in self._settings.sizes_of(case)}
        return [
            *(n for n in self._settings.sizes if n in own),
            *sorted(own - {*self._settings.sizes}),
        ]

    def _group(
        self,
        reduction: Reduction,
        n: int,
        prepared: Sequence[Prepared],
        verdicts: Mapping[Case, Verdict],
        ahead: Sequence[int],
    ) -> Group:
        """One size: verified, and timed where the backend can time; `ahead` are sizes that share
        the time that is left."""
        settings = self._settings
        shape = n, settings.rows
        taking = [one for one in prepared if shape in one.plans]
        group = partial(
            Group, reduction=reduction, n=n, plans={one.case: one.plans[shape] for one in taking},
            shas={one.case: _binary(one, shape) for one in taking},
        )  # fmt: skip
        asked = {one.case: [shape] for one in prepared}
        found = self._session.verify(prepared, asked, verdicts)
        verdicts = found.verdicts
        verified = group(verdicts=verdicts, interrupted=found.interrupted)
        if found.interrupted:
            return verified
        timed = self._session.backend.timed()
        right = [one for one in prepared if verdicts[one.case].outcome == "pass"]
        if timed is None or self._monitor is None or not n * settings.rows or not right:
            return verified
        ways = len(settings.methods)
        shares = sum(ways + (ways + 1) * self._moves(m) for m in ahead)
        try:
            with closing(Trial(self._session, timed, self._monitor, verified, right)) as trial:
                return self._timed(trial, verified, self._monitor, shares)
        except OutOfMemory as error:
            return _without_memory(verified, error)
        except KeyboardInterrupt:
            return replace(verified, interrupted=True)

    def _moves(self, n: int) -> float:
        """What a size takes to be moved once, counted in timings of a small one."""
        return n * self._settings.rows / _MOVED_IN_A_TIMING

    def _timed(self, trial: Trial, group: Group, monitor: Monitor, ahead: float) -> Group:
        """Time the cases that are right; `ahead` are other timings, counted in those of small n."""
        settings, methods = self._settings, self._settings.methods
        times: dict[str, Times] = {}
        stories: list[Mapping[str, Any]] = []
        remarks: list[str] = []
        interrupted = False
        for k, method in enumerate(methods):
            others = monitor.other_processes()
            weight = len(methods) - k + ahead / (1 + self._moves(group.n))
            try:
                found = trial.measure(method, settings.deadline.share(weight), others)
            except EnvironmentProblem as problem:  # the other methods may still be possible
                remarks.append(f"{method.label}: {problem}")
                continue
            except OutOfMemory as error:
                group = replace(group, stories=tuple(stories), remarks=tuple(remarks), tried=True)
                return _without_memory(group, error)
            times[method.label] = found.times
            if interrupted := found.interrupted:
                break
            stories.append(found.story)
            remarks += [f"{method.label}, n = {group.n}: {said}" for said in found.remarks]
        hurried = interrupted or settings.deadline.passed
        try:
            group = trial.judged(replace(group, times=times), hurried=hurried)
        except KeyboardInterrupt:  # answers that were not looked at have no times
            interrupted, group = True, replace(group, times={})
        else:
            remarks += [monitor.problem] if monitor.problem else []
        return replace(
            group, stories=tuple(stories), remarks=tuple(remarks), tried=True,
            interrupted=interrupted,
        )  # fmt: skip


def _without_memory(group: Group, error: OutOfMemory) -> Group:
    """The group whose right cases found no memory to be timed in."""
    skip = skipped("machine", str(error))
    left = {c: skip if v.outcome == "pass" else v for c, v in group.verdicts.items()}
    return replace(group, verdicts=left, times={})


def _binary(one: Prepared, shape: Shape) -> str | None:
    """The hash of the machine code that a plan runs: of several, the hash of their hashes."""
    programs = [one.programs.get(unit) for unit in one.plans[shape].units]
    hashes = [program.binary_sha if program else None for program in programs]
    known = [sha for sha in hashes if sha is not None]
    if not known or len(known) < len(hashes):
        return None
    return known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()
