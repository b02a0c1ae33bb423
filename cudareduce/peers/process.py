"""Libraries in worker processes, which may crash or hang without taking the run with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.peers.child import LibraryRunner
from cudareduce.peers.contract import Peer
from cudareduce.peers.faults import not_imported
from cudareduce.peers.job import CUT, UNVERIFIED, Found, Job, Outcome
from cudareduce.peers.scene import At, BrokenError, Phase, RoundDone
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

    def verdict(self, peers: Sequence[Peer]) -> Verdict:
        """The verdict on the library."""
        if self.late:
            return skipped("time", self.reason)
        peer = next((peer for peer in peers if peer.name == self.name), None)
        if peer is not None and self.phase == "imports":
            return not_imported(peer, self.reason)
        return Verdict("fail", self.reason)


class Processes:
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

    def __enter__(self) -> Processes:
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
        lost = {p.name: Found(verdict=self._lost[p.name]) for p in job.peers()
                if p.name in self._lost}  # fmt: skip
        while True:
            names = [peer.name for peer in left.peers()]
            if deadline.passed or not names:
                cut = Found(verdict=skipped("time", CUT))
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
                return Outcome(peers=lost | dict.fromkeys(names, Found(verdict=cause)))
            else:
                if isinstance(result, Outcome):
                    return replace(result, peers={**lost, **result.peers})
                name, verdict = result.name, result.verdict(left.peers())
                if not result.late:
                    self._lost[name] = verdict
            worker.end()
            if name not in names:  # no library was running
                if verdict.cause == "time":
                    continue  # the deadline has passed for all of them
                cause = skipped("machine", f"its process ended beside it: {verdict.reason}")
                return Outcome(peers=lost | dict.fromkeys(names, Found(verdict=cause)))
            called = next(p.called(job.problem) for p in left.peers() if p.name == name)
            lost[name] = Found(verdict=verdict, called=called)
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
