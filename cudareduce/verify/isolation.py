"""Verification in worker processes, so that a crash or hang of a kernel does not end the run.

On the CPU every kernel is verified this way, since its fault is a fault of the process. On a GPU a
user's own file is, since a fault poisons the CUDA context of the process that caused it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cudareduce.backends.emulator.toolchain import resolve_locations
from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec, open_backend
from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import Kernel
from cudareduce.errors import CudareduceError, EnvironmentProblem
from cudareduce.progress import say
from cudareduce.verify.jobs import Job, combined, final_verdict, verify_job
from cudareduce.verify.patterns import Inputs
from cudareduce.verify.verdict import HANGS, RIGHT, Verdict, is_unexplained, skipped
from cudareduce.workers import (
    NOT_STARTED,
    Event,
    Exited,
    Limit,
    Message,
    Parent,
    Raised,
    TimedOut,
    Worker,
    WorkerPool,
    events,
)

#: What names a queue of jobs: a case, or a part of its verification.
Key = TypeVar("Key", bound=Hashable)

#: How many lines of a kernel's printf are shown.
_PRINTED_LINES = 20
#: Advice for an external file that takes too long on the emulator.
_SMALLER = "; few elements are quicker: --n 100,1000 --sizes-only --time-limit 60"
#: Parts of the reason of a kernel that has written outside of its own memory.
_TRESPASSES = ("is outside the array", "past the end of its shared memory")


class Verifier:
    """Runs verification jobs in a worker process. Backends and inputs are reused between jobs."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._inputs = parent, Inputs()
        self._backends: dict[BackendSpec, Backend] = {}

    def verify(self, job: Job) -> Verdict:
        """The verdict of a job; lines that its kernel has printed are sent before. Raises the
        CudareduceError of a backend that cannot be opened."""
        limit = Limit(job.limit_s, "wall" if job.wall else "cpu")
        try:
            if job.spec not in self._backends:
                self._backends[job.spec] = open_backend(job.spec, catch_faults=True)
            backend = self._backends[job.spec]
            verdict = verify_job(job, backend, self._inputs, lambda: self._parent.limit(limit))
        except CudareduceError as error:
            if not job.optional:
                raise
            return final_verdict(job, skipped("machine", str(error)))
        name = job.prepared.case.kernel.id
        output = [f"{name} printf: {line}" for line in self._parent.take_output()]
        if lines := [*backend.printed(), *output]:
            self._parent.send(lines)
        return verdict


@dataclass(slots=True)
class _Progress:
    """The verdicts of the jobs of one case, None for a job that is not done."""

    verdicts: list[Verdict | None]
    decided: bool = False

    def final(self) -> Verdict | None:
        """The verdict of all jobs, or of the first failed one; of the next failed one if only that
        has a cause. None while this may still change."""
        whole = RIGHT
        for verdict in self.verdicts:
            if verdict is None:
                return None
            unexplained = whole.outcome == "fail"
            whole = combined(whole, verdict)
            if unexplained or not (whole.outcome == "pass" or is_unexplained(whole)):
                break
        return whole


class Isolation:
    """Verifies jobs in a pool of worker processes."""

    def __init__(self) -> None:
        self._pool = WorkerPool(Verifier)
        self._printed: Counter[str] = Counter()

    def verify(
        self,
        queues: Mapping[Key, Sequence[Job]],
        count: int,
        deadline: Deadline,
        started: Callable[[Job], None],
        finished: Callable[[Job], None] = lambda _: None,
        dropped: Container[Key] = (),
    ) -> Iterator[tuple[Key, Verdict]]:
        """The verdict of each queue of jobs as soon as it is final, from up to `count` jobs at a
        time, of which one uses the GPU; `started` and `finished` are called as a job begins and
        ends. A crash of a worker is a failure of its kernel. A timeout is a failure on a GPU and
        undecided on the emulator. A queue that the deadline cuts short, or that is `dropped`
        meanwhile, has no verdict. Raises an error that a worker cannot go on after, such as an
        EnvironmentProblem."""
        progress = {case: _Progress([None] * len(jobs)) for case, jobs in queues.items()}
        waiting = [(case, k, job) for case, jobs in queues.items() for k, job in enumerate(jobs)]
        running: dict[Worker[Any], tuple[Key, int, Job]] = {}
        try:
            while (waiting or running) and not deadline.passed:
                while len(running) < count:
                    gpu_taken = any(job.spec.timed for _, _, job in running.values())
                    next_job = _next(waiting, gpu_taken=gpu_taken)
                    if next_job is None:
                        break
                    case, k, job = next_job
                    if progress[case].decided or case in dropped:
                        finished(job)
                    else:
                        # A GPU takes half a second to open, so its worker is kept for it.
                        worker = self._pool.worker("gpu" if job.spec.timed else "cpu")
                        running[worker] = next_job
                        worker.submit(Verifier.verify, job)
                        started(job)
                if not running:
                    continue
                for worker, event in events(running, deadline.left_s):
                    case, k, job = running[worker]
                    if isinstance(event, Message):
                        self._print(event.value)
                        continue
                    verdict = _verdict(job, event)
                    if any(words in verdict.reason for words in _TRESPASSES):
                        worker.end()  # it may have overwritten what the next job needs
                    del running[worker]
                    finished(job)
                    case_progress = progress[case]
                    case_progress.verdicts[k] = verdict
                    if HANGS in verdict.reason:  # its other jobs would take as long
                        case_progress.verdicts = [v or verdict for v in case_progress.verdicts]
                        waiting = [item for item in waiting if item[0] != case]
                    final = case_progress.final()
                    if final is not None:
                        case_progress.decided = True
                        for other in [w for w, item in running.items() if item[0] == case]:
                            other.end()
                            finished(running.pop(other)[2])
                        yield case, final
        finally:
            for worker in running:
                worker.end()

    def _print(self, lines: list[str]) -> None:
        """Show what a kernel has printed, up to a number of lines: it runs hundreds of times."""
        for line in lines:
            kernel = line.partition(" printf: ")[0]
            self._printed[kernel] += 1
            if self._printed[kernel] <= _PRINTED_LINES:
                say(line)
            elif self._printed[kernel] == _PRINTED_LINES + 1:
                say(f"{kernel} printf: what it prints from here on is not shown")

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        self._pool.close()


def _next(waiting: list[tuple[Key, int, Job]], *, gpu_taken: bool) -> tuple[Key, int, Job] | None:
    """Remove and return the first job that may begin; None if there is none."""
    free = (k for k, (_, _, job) in enumerate(waiting) if not (gpu_taken and job.spec.timed))
    first = next(free, None)
    return None if first is None else waiting.pop(first)


def _verdict(job: Job, event: Event) -> Verdict:
    """The verdict of a job whose worker has returned, failed, exited or timed out. Raises the error
    that it raised, and EnvironmentProblem if no worker starts."""
    match event:
        case Raised(error):
            raise error
        case Exited(last_line=line, started=False):
            raise EnvironmentProblem(f"{NOT_STARTED}: {line or event.how}")
        case Exited(last_line=line):
            return final_verdict(job, Verdict("fail", resolve_locations(line) or event.how))
        case TimedOut():
            why = f"{HANGS} {job.limit_s:.4g} s: it hangs, or --time-limit is too short"
            if job.spec.timed:
                return final_verdict(job, Verdict("fail", why))
            # The emulator itself may be slow; a deadlock that it detects is reported as one.
            smaller = _smaller(job.prepared.case.kernel)
            return final_verdict(job, skipped("time", f"cannot be decided here: {why}{smaller}"))
        case _:
            assert isinstance(event.value, Verdict)
            return event.value


def _smaller(kernel: Kernel) -> str:
    """Advice on quicker options for a program that takes too long on the emulator."""
    return "" if kernel.program is None else _SMALLER
