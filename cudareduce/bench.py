"""The main job: verify every case, time those that are right, and put both into records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cudareduce.backend import BuildError, OutOfMemory
from cudareduce.cuda import CudaBackend
from cudareduce.execute import Bound, Case, Programs
from cudareduce.inputs import make
from cudareduce.join import Group, Join
from cudareduce.measure import Timing, measure
from cudareduce.operators import Reduction
from cudareduce.prelude import Stage
from cudareduce.record import Record
from cudareduce.reference import Reference, reference
from cudareduce.registry import Choice
from cudareduce.session import Session
from cudareduce.timer import CudaTimer
from cudareduce.verify import PASS, ROW_SHAPES, Verdict, edge_sizes, judge, worse

#: Edge sizes up to this are part of every bench; `verify` takes them all.
_QUICK_EDGE = 65537
FLOOR_EVENTS, FLOOR_LAUNCH = "floor: two events", "floor: an empty kernel"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Records in the order asked for, and the floors of the method measured beside them."""

    records: tuple[Record, ...]
    floors_us: Mapping[str, float]
    cases: tuple[Case, ...]
    interrupted: bool
    build_failed: bool


class Bench:
    """One run on one backend."""

    def __init__(self, session: Session, join: Join) -> None:
        self._session, self._join = session, join
        self._build_failed = False

    def run(self, choices: Sequence[Choice]) -> Outcome:
        """Bench every choice; Ctrl-C ends the run with what it has."""
        records: list[Record] = []
        floors: dict[str, float] = {}
        interrupted = False
        cases: list[tuple[Case, str | None]] = []
        for what in self._session.settings.reductions:
            if interrupted:
                break
            cases = list(self._session.cases(choices, what))
            groups: list[Group] = []
            try:
                self._bench(what, cases, groups)
            except KeyboardInterrupt:
                interrupted = True
            for group in groups:
                floors |= group.floors
                records += self._join.records(group, [case for case, _ in cases])
        ran = tuple(case for case, reason in cases if reason is None)
        return Outcome(tuple(records), floors, ran, interrupted, self._build_failed)

    def _bench(
        self, what: Reduction, cases: Sequence[tuple[Case, str | None]], groups: list[Group]
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
                self._build_failed = True
                skips[case] = Verdict("skip", f"does not compile: {made}")
            else:
                programs[case] = made
        at_edges: dict[Case, Verdict] = {}
        session.verify(programs, edges, at_edges, skip_others=True)
        for n in asked.sizes:
            limits = session.backend.limits()
            shas = {
                case: _binary(
                    made, [step.stage for step in case.plan(n, asked.rows, limits).passes]
                )
                for case, made in programs.items()
                if case.why_not_at(n, asked.rows, limits) is None
            }
            group = Group(what, n, skips | at_edges, shas)
            groups.append(group)
            session.verify(programs, [(n, asked.rows)], group.verdicts)
            if session.backend.name == "cuda" and n * asked.rows:
                self._time(group, programs)

    def _time(self, group: Group, programs: Mapping[Case, Programs]) -> None:
        """Time the cases that are right, on fresh input, and judge what the timed runs left."""
        session, asked, n = self._session, self._session.settings, group.n
        backend = session.backend
        assert isinstance(backend, CudaBackend)
        right = [case for case in programs if group.verdicts[case].outcome == "pass"]
        if not right:
            return
        data = make(asked.pattern, group.what, n, asked.rows, asked.seed + 1)
        limits = backend.limits()
        try:
            given = backend.upload(data)
        except OutOfMemory as error:
            group.verdicts |= dict.fromkeys(right, Verdict("skip", str(error)))
            return
        bounds = {
            case: Bound(backend, case.plan(n, asked.rows, limits), programs[case], given)
            for case in right
        }
        timer = CudaTimer(backend)
        readers = timer.readers(given)
        entrants = {FLOOR_EVENTS: lambda: None, FLOOR_LAUNCH: timer.empty(), **readers}
        first_only = asked.region == "first-pass"
        for k, bound in enumerate(bounds.values()):
            bound.poison()
            entrants[str(k)] = bound.run_first if first_only else bound.run
        latest: dict[str, Timing] = {}
        interrupted = False
        with session.phase("measuring rounds of all kernels", asked.rounds) as step:
            try:
                measure(timer, entrants, asked.rounds, latest, step)
            except KeyboardInterrupt:
                interrupted = True
                backend.synchronize()
        group.timings = {case: latest[str(k)] for k, case in enumerate(right) if str(k) in latest}
        fastest = [latest[name] for name in readers if name in latest]
        group.ceiling = min(fastest, key=lambda timing: timing.median_us, default=None)
        group.floors = {
            name: latest[name].median_us for name in (FLOOR_EVENTS, FLOOR_LAUNCH) if name in latest
        }
        refs: dict[tuple[int, int], Reference] = {}
        undecided = {}
        for case, bound in bounds.items():
            if first_only:
                bound.run()
            shape = bound.plan.problem.n, bound.plan.problem.rows
            if shape not in refs:
                refs[shape] = reference(group.what, data[: shape[0] * shape[1]], shape[1])
            after = judge(bound.plan, bound.answers(), refs[shape], asked.pattern)
            bound.release()
            if after is None:
                undecided[case] = programs[case]
            else:
                self._after(group, case, after)
        backend.free(given)
        again = dict.fromkeys(undecided, PASS)
        if not interrupted:
            session.verify(undecided, [(n, asked.rows)], again)
        for case, verdict in again.items():
            self._after(group, case, verdict)
        if interrupted:
            raise KeyboardInterrupt

    @staticmethod
    def _after(group: Group, case: Case, verdict: Verdict) -> None:
        """A time stands only if the answer is still right once it has been taken."""
        if verdict.outcome == "fail":
            verdict = replace(verdict, reason=f"after timing: {verdict.reason}")
            group.timings.pop(case, None)
        group.verdicts[case] = worse(group.verdicts[case], verdict)


def _binary(programs: Programs, stages: Iterable[Stage]) -> str | None:
    """The hash of the machine code that these stages run: of several, the hash of their hashes."""
    hashes = [programs[stage].binary_sha for stage in dict.fromkeys(stages)]
    known = [sha for sha in hashes if sha is not None]
    if not known or len(known) < len(hashes):
        return None
    return known[0] if len(known) == 1 else hashlib.sha256("".join(known).encode()).hexdigest()
