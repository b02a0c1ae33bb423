"""Runs libraries in worker processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from time import perf_counter

from cudareduce.backend import TimedBackend
from cudareduce.backends import open_timed
from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import DeviceInput, Library, as_answers
from cudareduce.peers.job import (
    CUT,
    UNVERIFIED,
    At,
    BrokenError,
    Job,
    LibraryResult,
    Outcome,
    Phase,
    Reporter,
    RoundDone,
    Runtimes,
    faulty,
    keyed,
    not_imported,
    plan_for,
    runtimes,
)
from cudareduce.peers.timing import CALLS, WARM_CALLS, LibraryTiming
from cudareduce.peers.verification import Verification, import_libraries
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.patterns import Inputs
from cudareduce.verify.result_monitor import TimedData
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, worse
from cudareduce.workers import (
    Exited,
    Limit,
    Message,
    Parent,
    Raised,
    Returned,
    TimedOut,
    Worker,
    WorkerPool,
    events,
)

_NO_LIBRARY = "no library could be timed, so no kernel was timed beside them"


class LibraryRunner:
    """In a worker: does jobs, and keeps the backend, inputs, and the libraries that are loaded."""

    def __init__(self, parent: Parent) -> None:
        self._reporter, self._inputs, self._runtimes = Reporter(parent), Inputs(), Runtimes()
        self._opened: tuple[TimedBackend, DeviceTimer] | None = None

    def run(self, job: Job) -> Outcome:
        """The outcome of a job. Raises BrokenError, OutOfMemory and EnvironmentProblem."""
        deadline = Deadline(job.deadline_s)
        if job.alone is not None:
            return Outcome(
                peers={peer.name: self._by_itself(job, peer, deadline) for peer in job.libraries()}
            )
        if self._opened is None:
            made = open_timed(job.spec)
            self._opened = made, DeviceTimer(made, made.monitor())
        backend, timer = self._opened
        found = self._examined(
            Verification(
                job, backend, timer, self._reporter, self._inputs, self._runtimes, deadline
            )
        )
        if not job.rounds or all(one.verdict.outcome != "pass" for one in found.values()):
            said: tuple[str, ...] = (
                (_NO_LIBRARY,) if job.rounds and job.kernels and not job.odd else ()
            )
            return Outcome(peers=self._marked(found), remarks=said)
        trial = LibraryTiming(job, backend, timer, self._reporter, found, deadline)
        passes = trial.passes()
        loaded_here = runtimes()
        said = ()
        if len(loaded_here) > 1:
            said = (
                f"the libraries loaded {len(loaded_here)} CUDA runtimes into one process "
                f"({', '.join(loaded_here)}): name fewer with --peers where figures look odd",
            )
        return Outcome(
            peers=self._marked(trial.found), kernels=trial.kernels, passes=passes, remarks=said
        )

    def _marked(self, found: Mapping[str, LibraryResult]) -> dict[str, LibraryResult]:
        """The results, with a remark on each library that loaded a second CUDA runtime."""
        remarks = self._runtimes.remarks
        return {
            name: replace(one, verdict=replace(one.verdict, reason=remarks[name]))
            if name in remarks and one.verdict.outcome == "pass" else one
            for name, one in found.items()
        }  # fmt: skip

    def _examined(self, verification: Verification) -> dict[str, LibraryResult]:
        """A verdict on every library in every layout. If there are several layouts, the first has
        been verified in an earlier job."""
        found: dict[str, LibraryResult] = {}
        job = verification.job
        for number, layout in enumerate(job.layouts):
            if job.odd and not number:
                found |= import_libraries(
                    job.libraries(), job.problem, self._reporter, self._runtimes
                )
                continue
            one = verification.results(layout)
            found |= {keyed(name, number): verdict for name, verdict in one.items()}
        return found

    def _by_itself(self, job: Job, peer: Library, deadline: Deadline) -> LibraryResult:
        """Verify a library that uses its own context and streams; only host time is measured."""
        found = import_libraries([peer], job.problem, self._reporter, self._runtimes, deadline)[
            peer.name
        ]
        seeds = ("random", job.seed), (job.pattern, job.seed + 1)
        problems = [job.problem_at(shape) for shape in job.shapes[-job.asked :]]
        taken = [problem for problem in problems if not peer.why_not(problem)]
        for problem, (pattern, seed) in product(taken, seeds):
            if found.verdict.outcome != "pass":
                break
            if deadline.passed:
                return replace(found, verdict=skipped("time", UNVERIFIED))
            try:
                verdict, host_us = self._called(job, peer, problem, pattern, seed)
            except Exception as error:
                return replace(found, verdict=faulty(peer, error))
            verdict = worse(found.verdict, verdict)
            found = replace(found, verdict=verdict, host_us=host_us if job.rounds else None)
        return found

    def _called(
        self, job: Job, peer: Library, problem: Problem, pattern: str, seed: int
    ) -> tuple[Verdict, float]:
        """A verdict on the results of one input, and of its variant if the library can replace its
        input; and the median host time of a call in microseconds."""
        plan = plan_for(peer.name, problem)
        data = TimedData(pattern, job.reduction, problem.n, problem.rows, seed, [plan])
        given = DeviceInput(problem=problem, data=data.elements, folder=job.folder)
        self._reporter.at(peer.name, "prepares")
        ready = peer.prepare(given)
        assert ready.fetch is not None
        taken = []
        for k in range(WARM_CALLS + CALLS):
            began = perf_counter()
            ready.run()
            if k >= WARM_CALLS:
                taken.append(1e6 * (perf_counter() - began))
            else:
                self._reporter.at(peer.name)
        verdict = RIGHT
        for number in (0, 1) if ready.refill else (0,):
            if ready.refill and number:
                data.place(number)
                ready.refill()
                ready.run()
            answers = as_answers(problem, ready.fetch())
            verdict = worse(verdict, data.judged(plan, answers, number) or RIGHT)
        return verdict, median(taken)


#: Seconds without a heartbeat: while something may be compiled or imported, and while it runs.
_PREPARES_S, _RUNS_S = 300.0, 60.0
#: Seconds between two checks of the deadline.
_CHECK_S = 0.25
#: Seconds without a heartbeat after the deadline: the worker checks it between calls.
_GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Lost:
    """A worker has ended or hangs, or is `late`: the reason, and which library was in which phase;
    none, if the name is empty."""

    name: str
    phase: Phase
    reason: str
    late: bool = False

    def verdict(self, peers: Sequence[Library]) -> Verdict:
        """The verdict on the library."""
        if self.late:
            return skipped("time", self.reason)
        peer = next((peer for peer in peers if peer.name == self.name), None)
        if peer is not None and self.phase == "imports":
            return not_imported(peer, self.reason)
        return Verdict("fail", self.reason)


class LibraryWorkers:
    """Runs jobs in worker processes: one that libraries share, and one for each library that needs
    its own."""

    def __init__(
        self,
        time_limit_s: float | None,
        state: type[LibraryRunner] | None = None,
    ) -> None:
        self._prepares_s, self._runs_s = time_limit_s or _PREPARES_S, time_limit_s or _RUNS_S
        self._state = state or LibraryRunner
        self._pool = WorkerPool(self._state, fresh=True)
        self._lost: dict[str, Verdict] = {}

    def __enter__(self) -> LibraryWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        self._pool.close()

    def outcome(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """The outcome of a job: of libraries that share a process, then of each that needs its own.
        A library that has killed a worker is not tried again; `step` is called after each round."""
        shared = self._tried(job, deadline, step)
        peers = dict(shared.peers)
        for name in job.own():
            peers |= self._tried(replace(job, alone=name, kernels=()), deadline, step).peers
        return replace(shared, peers=peers)

    def _tried(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """Run a job; without a library that ends its worker or breaks the device, run it again."""
        left = replace(job, left_out=job.left_out | set(self._lost))
        lost = {p.name: LibraryResult(verdict=self._lost[p.name]) for p in job.libraries()
                if p.name in self._lost}  # fmt: skip
        while True:
            names = [peer.name for peer in left.libraries()]
            if deadline.passed or not names:
                cut = LibraryResult(verdict=skipped("time", CUT))
                return Outcome(peers=lost | dict.fromkeys(names, cut))
            left = replace(left, deadline_s=None if deadline.seconds is None else deadline.left_s)
            worker = self._pool.worker(job.alone)
            left = replace(left, ours=len(self._pool))  # the other workers and this process
            try:
                result = self._run(worker, left, deadline, step)
            except BrokenError as error:
                name, verdict = error.name, error.verdict
            except CudareduceError as error:
                cause = skipped("machine", str(error))
                return Outcome(peers=lost | dict.fromkeys(names, LibraryResult(verdict=cause)))
            else:
                if isinstance(result, Outcome):
                    return replace(result, peers={**lost, **result.peers})
                name, verdict = result.name, result.verdict(left.libraries())
                if not result.late:
                    self._lost[name] = verdict
            worker.end()
            if name not in names:  # no library was running
                if verdict.cause == "time":
                    continue  # the deadline has passed for all of them
                cause = skipped("machine", f"its process ended beside it: {verdict.reason}")
                return Outcome(peers=lost | dict.fromkeys(names, LibraryResult(verdict=cause)))
            called = next(p.called(job.problem) for p in left.libraries() if p.name == name)
            lost[name] = LibraryResult(verdict=verdict, called=called)
            left = left.without(name)

    def _run(
        self, worker: Worker[LibraryRunner], job: Job, deadline: Deadline, step: Callable[[], None]
    ) -> Outcome | _Lost:
        """The outcome of a job, or how its worker ended. Raises what the worker raises."""
        worker.submit(self._state.run, job, Limit(_PREPARES_S))
        at = At()
        while True:
            for _, event in events([worker], _CHECK_S):
                match event:
                    case Returned(outcome):
                        assert isinstance(outcome, Outcome)
                        return outcome
                    case Raised(error):
                        raise error
                    case Exited(last_line=line):
                        said = f" ({line[:160]})" if line else ""
                        return _lost(worker, at, event.how + said)
                    case TimedOut(limit):
                        why = "it hangs, or --time-limit is too short"
                        return _lost(worker, at, f"no answer after {limit.seconds:.4g} s: {why}")
                    case Message(At() as at):
                        worker.set_limit(self._limit(at))
                    case Message(RoundDone()):
                        step()
            if deadline.passed and worker.silent_s > _GRACE_S:
                return _lost(worker, at, UNVERIFIED, late=True)

    def _limit(self, at: At) -> Limit:
        if not at.name and not at.names:  # kernels of the package are compiled
            return Limit(_PREPARES_S)
        return Limit(self._runs_s if at.phase == "runs" else self._prepares_s)


def _lost(worker: Worker[LibraryRunner], at: At, reason: str, *, late: bool = False) -> _Lost:
    name = at.names[worker.beat_index] if at.names else at.name
    return _Lost(name, at.phase, reason, late)
