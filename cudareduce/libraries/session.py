"""Run libraries in worker processes, so that a crash or hang of a library does not end the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.libraries.calls import (
    BrokenError,
    PhaseStart,
    RoundDone,
    import_failure,
)
from cudareduce.libraries.job import (
    CUT,
    UNVERIFIED,
    Job,
    LibraryResult,
    Outcome,
)
from cudareduce.libraries.worker import LibraryRunner
from cudareduce.verify.verdict import Verdict, skipped
from cudareduce.workers import (
    Exited,
    Limit,
    Message,
    Raised,
    Returned,
    TimedOut,
    Worker,
    WorkerPool,
    events,
)

#: Seconds without a heartbeat: while something may be compiled or imported, and while it runs.
_PREPARES_S, _RUNS_S = 300.0, 60.0
#: Seconds between two checks of the deadline, and without a heartbeat after it: the worker checks
#: it between calls.
_CHECK_S, _GRACE_S = 0.25, 5.0


class LibraryWorkers:
    """Runs jobs in worker processes: one shared by most libraries, and one for each library that
    needs a process of its own. A library that crashed or blocked a worker is not run again."""

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
        """Kill the workers."""
        self._pool.close()

    def outcome(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """Run a job: first the libraries that share a process, then each that needs its own. Calls
        `step` after each round."""
        shared = self._run(job, deadline, step)
        results = dict(shared.results)
        for name in job.own():
            results |= self._run(replace(job, alone=name, kernels=()), deadline, step).results
        return replace(shared, results=results)

    def _run(self, job: Job, deadline: Deadline, step: Callable[[], None]) -> Outcome:
        """Run a job. If a library ends the worker or breaks the device, run it again without that
        library."""
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
                return replace(outcome, results={**lost, **outcome.results})
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
                verdict = skipped("machine", f"its process ended: {verdict.reason}")
                return _without_result(lost, libraries, verdict)

    def _outcome(
        self, worker: Worker[LibraryRunner], job: Job, deadline: Deadline, step: Callable[[], None]
    ) -> Outcome:
        """Run a job in a worker. Raises what the worker raises, and BrokenError if the worker ends
        or does not respond in time."""
        worker.submit(self._state.run, job, Limit(_PREPARES_S))
        phase_start = PhaseStart()
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
                        raise self._broken(worker, job, phase_start, event.how + printed)
                    case TimedOut(limit):
                        why = "it hangs, or --time-limit is too short"
                        reason = f"no result after {limit.seconds:.4g} s: {why}"
                        raise self._broken(worker, job, phase_start, reason)
                    case Message(PhaseStart() as phase_start):
                        worker.set_limit(self._limit(phase_start))
                    case Message(RoundDone()):
                        step()
            if deadline.passed and worker.silent_s > _GRACE_S:
                raise BrokenError(_running(worker, phase_start), skipped("time", UNVERIFIED))

    def _limit(self, phase_start: PhaseStart) -> Limit:
        if not phase_start.name and not phase_start.names:  # kernels of the package are compiled
            return Limit(_PREPARES_S)
        return Limit(self._runs_s if phase_start.phase == "runs" else self._prepares_s)

    def _broken(
        self, worker: Worker[LibraryRunner], job: Job, phase_start: PhaseStart, reason: str
    ) -> BrokenError:
        """The error for the library that was running when the worker ended. The library is not run
        again."""
        name, verdict = _running(worker, phase_start), Verdict("fail", reason)
        for library in job.libraries():
            if library.name == name and phase_start.phase == "imports":
                verdict = import_failure(library, reason)
        self._lost[name] = verdict
        return BrokenError(name, verdict)


def _without_result(
    lost: Mapping[str, LibraryResult], libraries: Iterable[str], verdict: Verdict
) -> Outcome:
    """The outcome if a job did not complete: `verdict` for its libraries, and those lost before."""
    return Outcome(results={**lost, **dict.fromkeys(libraries, LibraryResult(verdict=verdict))})


def _running(worker: Worker[LibraryRunner], phase_start: PhaseStart) -> str:
    """The name of the library that ran last; empty if none did."""
    return phase_start.names[worker.beat_index] if phase_start.names else phase_start.name
