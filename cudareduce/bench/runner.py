"""The main job: verify every case, time those that are right, and put both into records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from cudareduce.backend import BuildError, OutOfMemory
from cudareduce.bench.group import Group
from cudareduce.bench.records import Join
from cudareduce.bench.session import Session
from cudareduce.bench.trial import Trial, methods
from cudareduce.errors import EnvironmentProblem
from cudareduce.gpu.cuda import CudaBackend
from cudareduce.gpu.nvml import Monitor, own_processes
from cudareduce.launch.case import Case, Programs
from cudareduce.launch.prelude import Stage
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.verify.verdict import Verdict
from cudareduce.verify.verify import ROW_SHAPES, edge_sizes

#: Edge sizes up to this are part of every bench; `verify` takes them all.
_QUICK_EDGE = 65537
#: So many elements take as long to verify, and to upload for every context, as a small size takes
#: to be timed: on an H200 two kernels took 6.1 s for nine rounds at up to 2^24, and at 2^26 7.6 s
#: after 1.8 s of verification.
_MOVED_IN_A_TIMING = 2**28


@dataclass(frozen=True, slots=True)
class Outcome:
    """Records in the order asked for, and the floors of the method measured beside them."""

    records: tuple[Record, ...]
    floors_us: Mapping[str, float]
    cases: tuple[Case, ...]
    interrupted: bool
    build_failed: tuple[Case, ...]
    remarks: tuple[str, ...] = ()
    stories: tuple[Mapping[str, Any], ...] = ()
    tried: bool = False

    @property
    def untimed(self) -> bool:
        """True if right kernels were to be timed and no round of any was finished."""
        times = [record.time_us for record in self.records if record.verdict == "pass"]
        return self.tried and bool(times) and not any(times)


class Bench:
    """One run on one backend."""

    def __init__(self, session: Session, join: Join) -> None:
        self._session, self._join = session, join
        self._tried = False
        self._build_failed: list[Case] = []
        self._remarks: dict[str, None] = {}
        self._stories: list[Mapping[str, Any]] = []
        self._monitor: Monitor | None = None

    def run(self, choices: Sequence[Choice]) -> Outcome:
        """Bench every choice; Ctrl-C ends the run with what it has."""
        records: list[Record] = []
        floors: dict[str, float] = {}
        interrupted = False
        ran: list[Case] = []
        asked = self._session.settings
        for k, what in enumerate(asked.reductions):
            if interrupted:
                break
            cases = list(self._session.cases(choices, what))
            groups: list[Group] = []
            try:
                self._bench(what, cases, groups, len(asked.reductions) - k - 1)
            except KeyboardInterrupt:
                interrupted = True
                self._remarks.setdefault("interrupted: what is missing was not measured")
            for group in groups:
                for label, found in group.timed.items():
                    suffix = "" if label == asked.timings[0] else f", {label}"
                    floors |= {name + suffix: us for name, us in found.floors.items()}
                records += self._join.records(group, [case for case, _ in cases])
            ran += [case for case, reason in cases if reason is None]
        return Outcome(
            tuple(records), floors, tuple(ran), interrupted, tuple(self._build_failed),
            tuple(self._remarks), tuple(self._stories), self._tried,
        )  # fmt: skip

    def _bench(
        self,
        what: Reduction,
        cases: Sequence[tuple[Case, str | None]],
        groups: list[Group],
        reductions_ahead: int,
    ) -> None:
        session, asked = self._session, self._session.settings
        skips = {case: Verdict("skip", reason) for case, reason in cases if reason}
        runnable = [case for case, reason in cases if not reason]
        block = max((case.block for case in runnable), default=1)
        edges = [(n, 1) for n in edge_sizes(block) if n <= _QUICK_EDGE]
        edges += ROW_SHAPES
        built = session.build(runnable, [*edges, *((n, asked.rows) for n in asked.sizes)])
        programs: dict[Case, Programs] = {}
        for case, made in built.items():
            if isinstance(made, BuildError):
                self._build_failed.append(case)
                skips[case] = Verdict("skip", f"does not compile: {made}")
            else:
                programs[case] = made
        at_edges: dict[Case, Verdict] = {}
        session.verify(programs, edges, at_edges, skip_others=True)
        limits = session.backend.limits()
        for k, n in enumerate(asked.sizes):
            shas = {
                case: _binary(
                    made, [step.stage for step in case.plan(n, asked.rows, limits).passes]
                )
                for case, made in programs.items()
                if case.why_not_at(n, asked.rows, limits) is None
            }
            group = Group(what, n, skips | {c: _elsewhere(v) for c, v in at_edges.items()}, shas)
            groups.append(group)
            if asked.deadline.passed:
                late = Verdict("skip", session.why_cut())
                group.verdicts |= {c: late for c in programs if c not in group.verdicts}
                continue
            session.verify(programs, [(n, asked.rows)], group.verdicts)
            if session.backend.name == "cuda" and n * asked.rows:
                ahead = [*asked.sizes[k + 1 :], *asked.sizes * reductions_ahead]
                ways = len(methods(asked))
                parts = (ways + (ways + 1) * self._moves(m) for m in ahead)
                self._time(group, programs, sum(parts))

    def _moves(self, n: int) -> float:
        """What a size takes to be moved once, counted in timings of a small one."""
        return n * self._session.settings.rows / _MOVED_IN_A_TIMING

    def _time(self, group: Group, programs: Mapping[Case, Programs], ahead: float) -> None:
        """Time the cases that are right; `ahead` are other timings, counted in those of small n."""
        session = self._session
        right = {c: made for c, made in programs.items() if group.verdicts[c].outcome == "pass"}
        if not right:
            return
        backend = session.backend
        assert isinstance(backend, CudaBackend)
        monitor = self._monitor = self._monitor or backend.monitor()
        try:
            with closing(Trial(session, monitor, group, right)) as trial:
                self._try(trial, group, monitor, ahead)
        except OutOfMemory as error:
            group.timed.clear()
            group.verdicts |= dict.fromkeys(right, Verdict("skip", str(error)))

    def _try(self, trial: Trial, group: Group, monitor: Monitor, ahead: float) -> None:
        asked = self._session.settings
        interrupted, self._tried = False, True
        ways = methods(asked)
        try:
            for k, method in enumerate(ways):
                others = monitor.strangers(own_processes())
                deadline = asked.deadline.share(len(ways) - k + ahead / (1 + self._moves(group.n)))
                where = f"{method.label}, n = {group.n}"
                try:
                    story, said = trial.measure(method, deadline, others)
                except EnvironmentProblem as problem:  # the other methods may still be possible
                    self._say([str(problem)], method.label)
                    continue
                self._stories.append(story)
                self._say(said, where)
        except KeyboardInterrupt:
            interrupted = True
        try:
            trial.inspect(hurried=interrupted or asked.deadline.passed)
        except KeyboardInterrupt:
            group.timed.clear()  # answers that were not looked at have no times
            raise
        if monitor.problem:
            self._remarks.setdefault(monitor.problem)
        if interrupted:
            raise KeyboardInterrupt

    def _say(self, sentences: Sequence[str], where: str) -> None:
        """Keep a remark once, with the first place where it was true."""
        for sentence in sentences:
            self._remarks.setdefault(f"{where}: {sentence}")


def _elsewhere(verdict: Verdict) -> Verdict:
    """What a verdict at the edges says of another size: errors are that size's own."""
    return replace(verdict, error=None, bound=None, ulp=None)


def _binary(programs: Programs, stages: Iterable[Stage]) -> str | None:
    """The hash of the machine code that these stages run: of several, the hash of their hashes."""
    hashes = [programs[stage].binary_sha for stage in dict.fromkeys(stages)]
    known = [sha for sha in hashes if sha is not None]
    if not known or len(known) < len(hashes):
        return None
    return known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()
