"""Verifies and times libraries in a worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from statistics import median
from time import perf_counter

from cudareduce.backend import TimedBackend
from cudareduce.backends import open_timed
from cudareduce.budget import Deadline
from cudareduce.launch.plan import Problem
from cudareduce.peers.as_called import CALLS, WARM_CALLS
from cudareduce.peers.contract import Given, Peer, as_answers
from cudareduce.peers.examine import Examination, loaded
from cudareduce.peers.faults import Runtimes, faulty, runtimes
from cudareduce.peers.job import UNVERIFIED, Found, Job, Outcome, keyed, plan_for
from cudareduce.peers.scene import Teller
from cudareduce.peers.timed import Trial
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.patterns import Inputs
from cudareduce.verify.result_monitor import TimedData
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, worse
from cudareduce.workers import Parent

_NONE = "no library could be timed, so no kernel was timed beside them"


class LibraryRunner:
    """In a worker: does jobs, and keeps the backend, inputs, and the libraries that are loaded."""

    def __init__(self, parent: Parent) -> None:
        self._teller, self._inputs, self._runtimes = Teller(parent), Inputs(), Runtimes()
        self._opened: tuple[TimedBackend, DeviceTimer] | None = None

    def run(self, job: Job) -> Outcome:
        """The outcome of a job. Raises BrokenError, OutOfMemory and EnvironmentProblem."""
        deadline = Deadline(job.deadline_s)
        if job.alone is not None:
            return Outcome(
                peers={peer.name: self._by_itself(job, peer, deadline) for peer in job.peers()}
            )
        if self._opened is None:
            made = open_timed(job.spec)
            self._opened = made, DeviceTimer(made, made.monitor())
        backend, timer = self._opened
        found = self._examined(
            Examination(job, backend, timer, self._teller, self._inputs, self._runtimes, deadline)
        )
        if not job.rounds or all(one.verdict.outcome != "pass" for one in found.values()):
            said: tuple[str, ...] = (_NONE,) if job.rounds and job.kernels and not job.odd else ()
            return Outcome(peers=self._marked(found), remarks=said)
        trial = Trial(job, backend, timer, self._teller, found, deadline)
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

    def _marked(self, found: Mapping[str, Found]) -> dict[str, Found]:
        """Verdicts that also say who brought another CUDA runtime."""
        told = self._runtimes.told
        return {
            name: replace(one, verdict=replace(one.verdict, reason=told[name]))
            if name in told and one.verdict.outcome == "pass" else one
            for name, one in found.items()
        }  # fmt: skip

    def _examined(self, examination: Examination) -> dict[str, Found]:
        """A verdict on every peer with every layout; what is asked for was verified before where
        there are others."""
        found: dict[str, Found] = {}
        job = examination.job
        for number, layout in enumerate(job.layouts):
            if job.odd and not number:
                found |= loaded(job.peers(), job.problem, self._teller, self._runtimes)
                continue
            one = examination.found(layout)
            found |= {keyed(name, number): verdict for name, verdict in one.items()}
        return found

    def _by_itself(self, job: Job, peer: Peer, deadline: Deadline) -> Found:
        """A library on streams of its own, with no backend of ours beside it: host time alone."""
        found = loaded([peer], job.problem, self._teller, self._runtimes, deadline)[peer.name]
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
        self, job: Job, peer: Peer, problem: Problem, pattern: str, seed: int
    ) -> tuple[Verdict, float]:
        """A verdict on answers to one input, and to another in its place where the library takes
        that; and what a call takes."""
        plan = plan_for(peer.name, problem)
        data = TimedData(pattern, job.reduction, problem.n, problem.rows, seed, [plan])
        given = Given(
            problem=problem, data=data.elements, address=0, out=0, stream=0, native=None,
            allocate=lambda nbytes: 0, upload=lambda array: 0, arch=0, folder=job.folder,
        )  # fmt: skip
        self._teller.at(peer.name, "prepares")
        ready = peer.prepare(given)
        assert ready.fetch is not None
        taken = []
        for k in range(WARM_CALLS + CALLS):
            began = perf_counter()
            ready.run()
            if k >= WARM_CALLS:
                taken.append(1e6 * (perf_counter() - began))
            else:
                self._teller.at(peer.name)
        verdict = RIGHT
        for number in (0, 1) if ready.refill else (0,):
            if ready.refill and number:
                data.place(number)
                ready.refill()
                ready.run()
            answers = as_answers(problem, ready.fetch())
            verdict = worse(verdict, data.judged(plan, answers, number) or RIGHT)
        return verdict, median(taken)
