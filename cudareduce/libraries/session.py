"""Runs libraries in worker processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from statistics import median
from time import perf_counter

from cudareduce.backend import TimedBackend
from cudareduce.backends import open_timed
from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.launch.plan import Problem
from cudareduce.libraries.calls import (
    At,
    BrokenError,
    Reporter,
    RoundDone,
    Runtimes,
    faulty,
    not_imported,
    runtimes,
)
from cudareduce.libraries.contract import DeviceInput, Library, as_answers
from cudareduce.libraries.job import (
    CUT,
    UNVERIFIED,
    Job,
    LibraryResult,
    Outcome,
    keyed,
    library_plan,
)
from cudareduce.libraries.timing import CALLS, WARM_CALLS, LibraryTiming
from cudareduce.libraries.verification import Verification, import_libraries
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
#: Seconds without a heartbeat: while something may be compiled or imported, and while it runs.
_PREPARES_S, _RUNS_S = 300.0, 60.0
#: Seconds between two checks of the deadline, and without a heartbeat after it: the worker checks
#: it between calls.
_CHECK_S, _GRACE_S = 0.25, 5.0


class LibraryRunner:
    """In a worker: does jobs, and keeps the backend, inputs, and the libraries that are loaded."""

    def __init__(self, parent: Parent) -> None:
        self._reporter, self._inputs, self._runtimes = Reporter(parent), Inputs(), Runtimes()
        self._opened: tuple[TimedBackend, DeviceTimer] | None = None

    def run(self, job: Job) -> Outcome:
        """The outcome of a job. Raises BrokenError, OutOfMemory and EnvironmentProblem."""
        deadline = Deadline(job.deadline_s)
        if job.alone is not None:
            libraries = job.libraries()
            return Outcome(peers={lib.name: self._run_own(job, lib, deadline) for lib in libraries})
        if self._opened is None:
            backend = open_timed(job.spec)
            self._opened = backend, DeviceTimer(backend, backend.monitor())
        backend, timer = self._opened
        results = self._verify(job, backend, timer, deadline)
        if not job.rounds or all(result.verdict.outcome != "pass" for result in results.values()):
            is_missed = job.rounds and job.kernels and not job.odd
            remarks = (_NO_LIBRARY,) if is_missed else ()
            return Outcome(peers=self._with_remarks(results), remarks=remarks)
        timing = LibraryTiming(job, backend, timer, self._reporter, results, deadline)
        passes, loaded = timing.passes(), runtimes()
        remarks = (
            f"the libraries loaded {len(loaded)} CUDA runtimes into one process "
            f"({', '.join(loaded)}): name fewer with --peers where figures look odd",
        )
        return Outcome(
            peers=self._with_remarks(timing.results), kernels=timing.kernels, passes=passes,
            remarks=remarks if len(loaded) > 1 else (),
        )  # fmt: skip

    def _verify(
        self, job: Job, backend: TimedBackend, timer: DeviceTimer, deadline: Deadline
    ) -> dict[str, LibraryResult]:
        """A verdict on every library in every layout. If there are several layouts, an earlier job
        has verified the first."""
        verification = Verification(
            job, backend, timer, self._reporter, self._inputs, self._runtimes, deadline
        )
        if not job.odd:
            return verification.results()
        problem = job.problem_of(job.layouts[0])
        results = import_libraries(job.libraries(), problem, self._reporter, self._runtimes)
        for number, layout in enumerate(job.layouts[1:], 1):
            found = verification.results(layout)
            results |= {keyed(name, number): result for name, result in found.items()}
        return results

    def _with_remarks(self, results: Mapping[str, LibraryResult]) -> dict[str, LibraryResult]:
        """The results, with a remark on each library that loaded a second CUDA runtime."""
        remarks = self._runtimes.remarks
        return {
            name: replace(result, verdict=replace(result.verdict, reason=remarks[name]))
            if name in remarks and result.verdict.outcome == "pass" else result
            for name, result in results.items()
        }  # fmt: skip

    def _run_own(self, job: Job, library: Library, deadline: Deadline) -> LibraryResult:
        """Verify a library that uses its own context and streams; only host time is measured."""
        problem = job.problem_of(job.layouts[0])
        result = import_libraries([library], problem, self._reporter, self._runtimes, deadline)[
            library.name
        ]
        problems = [Problem(job.reduction, *shape) for shape in job.shapes[-job.asked :]]
        taken = [problem for problem in problems if not library.why_not(problem)]
        seeds = ("random", job.seed), (job.pattern, job.seed + 1)
        for problem, (pattern, seed) in product(taken, seeds):
            if result.verdict.outcome != "pass":
                break
            if deadline.passed:
                return replace(result, verdict=skipped("time", UNVERIFIED))
            plan = library_plan(library.name, problem)
            try:
                data = TimedData(pattern, job.reduction, problem.n, problem.rows, seed, [plan])
                verdict, host_us = self._call_own(library, problem, data, job.folder)
            except Exception as error:
                return replace(result, verdict=faulty(library, error))
            verdict = worse(result.verdict, verdict)
            result = replace(result, verdict=verdict, host_us=host_us if job.rounds else None)
        return result

    def _call_own(
        self, library: Library, problem: Problem, data: TimedData, folder: str
    ) -> tuple[Verdict, float]:
        """A verdict on the results of one input, and of its variant if the library can replace its
        input; and the median host time of a call in microseconds."""
        self._reporter.at(library.name, "prepares")
        call = library.prepare(DeviceInput(problem=problem, data=data.elements, folder=folder))
        assert call.fetch is not None
        times_us = []
        for k in range(WARM_CALLS + CALLS):
            start_s = perf_counter()
            call.run()
            if k >= WARM_CALLS:
                times_us.append(1e6 * (perf_counter() - start_s))
            else:
                self._reporter.at(library.name)
        verdict, plan = RIGHT, library_plan(library.name, problem)
        for number in (0, 1) if call.refill else (0,):
            if call.refill and number:
                data.place(number)
                call.refill()
                call.run()
            answers = as_answers(problem, call.fetch())
            verdict = worse(verdict, data.judged(plan, answers, number) or RIGHT)
        return verdict, median(times_us)


class LibraryWorkers:
    """Runs jobs in worker processes: one that libraries share, and one for each library that needs
    its own. A library that has ended or blocked a worker is not tried again."""

    def __init__(
        self, time_limit_s: float | None, state: type[LibraryRunner] | None = None
    ) -> None:
        self._prepares_s, self._runs_s = time_limit_s or _PREPARES_S, time_limit_s or _RUNS_S
        self._state = state or LibraryRunner
        self._pool = WorkerPool(self._state, fresh=True)
        self._lost: dict[str, Verdict] = {}

    def __enter__(self) -> LibraryWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        """End the workers, whatever they are doing."""
        self._pool.close()

    def outcome(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """The outcome of a job: of libraries that share a process, then of each that needs its own.
        `step` is called after each round."""
        shared = self._run(job, deadline, step)
        peers = dict(shared.peers)
        for name in job.own():
            peers |= self._run(replace(job, alone=name, kernels=()), deadline, step).peers
        return replace(shared, peers=peers)

    def _run(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """Run a job; without a library that ends its worker or breaks the device, run it again."""
        lost = {lib.name: LibraryResult(verdict=self._lost[lib.name]) for lib in job.libraries()
                if lib.name in self._lost}  # fmt: skip
        job = job.without(*self._lost)
        while True:
            libraries = {library.name: library for library in job.libraries()}
            if deadline.passed or not libraries:
                return _without_result(lost, libraries, skipped("time", CUT))
            worker = self._pool.worker(job.alone)
            left_s = None if deadline.seconds is None else deadline.left_s
            job = replace(job, deadline_s=left_s, ours=len(self._pool))  # the others, and this one
            try:
                outcome = self._outcome(worker, job, deadline, step)
                return replace(outcome, peers={**lost, **outcome.peers})
            except BrokenError as error:
                worker.end()
                name, verdict = error.name, error.verdict
            except CudareduceError as error:
                return _without_result(lost, libraries, skipped("machine", str(error)))
            if name in libraries:
                called = libraries[name].called(job.problem_of(job.layouts[0]))
                lost[name] = LibraryResult(verdict=verdict, called=called)
                job = job.without(name)
            elif verdict.cause != "time":  # no library was running
                verdict = skipped("machine", f"its process ended beside it: {verdict.reason}")
                return _without_result(lost, libraries, verdict)

    def _outcome(
        self, worker: Worker[LibraryRunner], job: Job, deadline: Deadline, step: Callable[[], None]
    ) -> Outcome:
        """The outcome of a job. Raises what the worker raises, and BrokenError if it ends, or does
        not respond in time."""
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
                        printed = f" ({line[:160]})" if line else ""
                        raise self._broken(worker, job, at, event.how + printed)
                    case TimedOut(limit):
                        why = "it hangs, or --time-limit is too short"
                        reason = f"no answer after {limit.seconds:.4g} s: {why}"
                        raise self._broken(worker, job, at, reason)
                    case Message(At() as at):
                        worker.set_limit(self._limit(at))
                    case Message(RoundDone()):
                        step()
            if deadline.passed and worker.silent_s > _GRACE_S:
                raise BrokenError(_running(worker, at), skipped("time", UNVERIFIED))

    def _limit(self, at: At) -> Limit:
        if not at.name and not at.names:  # kernels of the package are compiled
            return Limit(_PREPARES_S)
        return Limit(self._runs_s if at.phase == "runs" else self._prepares_s)

    def _broken(self, worker: Worker[LibraryRunner], job: Job, at: At, reason: str) -> BrokenError:
        """The error of the library that was running when the worker ended."""
        name, verdict = _running(worker, at), Verdict("fail", reason)
        for library in job.libraries():
            if library.name == name and at.phase == "imports":
                verdict = not_imported(library, reason)
        self._lost[name] = verdict
        return BrokenError(name, verdict)


def _without_result(
    lost: Mapping[str, LibraryResult], libraries: Iterable[str], verdict: Verdict
) -> Outcome:
    """The outcome with one verdict on all libraries that were not lost before."""
    return Outcome(peers={**lost, **dict.fromkeys(libraries, LibraryResult(verdict=verdict))})


def _running(worker: Worker[LibraryRunner], at: At) -> str:
    """The name of the library that was running last; empty if none was."""
    return at.names[worker.beat_index] if at.names else at.name
