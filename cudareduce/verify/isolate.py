"""Verification in child processes, which may crash or hang without taking the run with them.

On the CPU every kernel is verified so, since a fault is the process's own. On the GPU a user's own
file is, since a fault poisons the CUDA context of the process that caused it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from time import monotonic

from cudareduce.budget import Deadline
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import CudareduceError, EnvironmentProblem
from cudareduce.launch.case import Case
from cudareduce.library.kernel import Kernel
from cudareduce.progress import say
from cudareduce.signals import held
from cudareduce.temporary import temporary_folder
from cudareduce.verify.child import COMPILED, STARTED, serve
from cudareduce.verify.children import end_group
from cudareduce.verify.forking import fork_server, safe_path
from cudareduce.verify.job import Job, both, told
from cudareduce.verify.verdict import HANGS, RIGHT, Verdict, skipped
from cudareduce.verify.watchdog import Watchdog

#: Seconds that a killed child is waited for before it is left to the operating system.
_KILL_WAIT_S = 10.0
#: Seconds for one that answers no more to end by itself, so that it can be said how.
_END_WAIT_S = 1.0
#: Lines of each kernel's printf that are shown.
_PRINTED_LINES = 20
#: What to try with a file that launches much and does much, or all of it many times over: sizes
#: that a small launch takes in several turns, the last of them in part.
_SMALLER = (
    "; a small launch on few elements is quicker: --block 32{} --n {} --sizes-only --time-limit 60"
)
_FEW, _FEW_TILES = "100,1000", "256,1024"
#: What is said of one that has written to where nothing of its own lies.
_TRESPASSES = ("is outside the array", "past the end of its shared memory")
_NO_CHILD = "a process to verify in does not start: see what ends it, and whether memory is left"


@dataclass(slots=True)
class _Found:
    """What the jobs of one case have found so far, None where one has not answered."""

    verdicts: list[Verdict | None]
    told: bool = False

    def final(self) -> Verdict | None:
        """The verdict of all jobs, or of the first that failed; None while that may yet change."""
        whole = RIGHT
        for verdict in self.verdicts:
            if verdict is None:
                return None
            whole = both(whole, verdict)
            if whole.outcome != "pass":
                break
        return whole


def _smaller(kernel: Kernel) -> str:
    """What to ask of a kernel instead that takes too long here."""
    if kernel.guessed is None:
        return ""
    many = kernel.scope != "rows" and kernel.grid != "one"
    return _SMALLER.format(" --grid 2" * many, _FEW_TILES if kernel.whole_tiles else _FEW)


def _next(waiting: list[tuple[Case, int, Job]], *, gpu_taken: bool) -> tuple[Case, int, Job] | None:
    """Take the first job that may begin, if there is one."""
    free = (k for k, (_, _, job) in enumerate(waiting) if not (gpu_taken and job.spec.timed))
    first = next(free, None)
    return None if first is None else waiting.pop(first)


class Isolation:
    """Child processes that do jobs, and are replaced when they die."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._children: list[_Child] = []
        self._printed: Counter[str] = Counter()

    def verify(
        self,
        queues: Mapping[Case, Sequence[Job]],
        count: int,
        deadline: Deadline,
        started: Callable[[Job], None],
    ) -> Iterator[tuple[Case, Verdict]]:
        """Verdicts on cases, each as soon as it stands, from up to `count` jobs at a time, of which
        one uses the GPU; `started` is called as one begins. A crash of a child is a failure, and on
        a GPU no answer in time, which on the emulator decides nothing. A case that the deadline
        cuts short has none. Raises what a child cannot go on without, such as an
        EnvironmentProblem."""
        found = {case: _Found([None] * len(jobs)) for case, jobs in queues.items()}
        waiting = [(case, k, job) for case, jobs in queues.items() for k, job in enumerate(jobs)]
        busy: dict[_Child, tuple[Case, int]] = {}
        try:
            while (waiting or busy) and not deadline.passed:
                while len(busy) < count:
                    gpu_taken = any(queues[case][k].spec.timed for case, k in busy.values())
                    next_one = _next(waiting, gpu_taken=gpu_taken)
                    if next_one is None:
                        break
                    case, k, job = next_one
                    if not found[case].told:
                        child = self._free(busy, gpu=job.spec.timed)
                        busy[child] = case, k
                        child.give(job)
                        started(job)
                for child, verdict in _answers(busy, deadline) if busy else ():
                    case, k = busy.pop(child)
                    found[case].verdicts[k] = verdict
                    if HANGS in verdict.reason:  # what else it might do would take as long
                        found[case].verdicts = [one or verdict for one in found[case].verdicts]
                        waiting = [one for one in waiting if one[0] != case]
                    final = found[case].final()
                    if final is not None:
                        found[case].told = True
                        for other in [c for c, (whose, _) in busy.items() if whose == case]:
                            other.kill()  # it has failed: what else it does is of no interest
                            del busy[other]
                        yield case, final
        finally:
            for child in busy:
                child.kill()

    def _free(self, busy: Mapping[_Child, object], *, gpu: bool) -> _Child:
        """A child for a job that uses the GPU, which takes half a second to open, or does not."""
        self._children = [child for child in self._children if child.alive]
        idle = [child for child in self._children if child not in busy and child.gpu == gpu]
        free = next(iter(idle), None)
        if free is None:
            with held():
                self._folder = self._folder or temporary_folder()
                free = _Child(fork_server(), Path(self._folder.name), self._print, gpu=gpu)
                self._children.append(free)
        return free

    def _print(self, lines: list[str]) -> None:
        """Show what a kernel has printed, unless it has printed enough: it runs hundreds of
        times."""
        for line in lines:
            kernel = line.partition(" printf: ")[0]
            self._printed[kernel] += 1
            if self._printed[kernel] <= _PRINTED_LINES:
                say(line)
            elif self._printed[kernel] == _PRINTED_LINES + 1:
                say(f"{kernel} printf: what it prints from here on is not shown")

    def close(self) -> None:
        """End the children, whatever they are doing, and remove what they have left."""
        with held():
            for child in self._children:
                child.kill()
            if self._folder is not None:
                self._folder.cleanup()
            self._children, self._folder = [], None


class _Child:
    """A process that does one job after the other."""

    def __init__(
        self,
        context: ForkServerContext | SpawnContext,
        folder: Path,
        tell: Callable[[list[str]], None],
        *,
        gpu: bool,
    ) -> None:
        self._print, self.gpu = tell, gpu
        self.pipe, theirs = context.Pipe()
        handle, name = tempfile.mkstemp(dir=folder, suffix=".log")
        os.close(handle)
        self._log = Path(name)
        self._process = context.Process(target=serve, args=(theirs, name), daemon=True)
        try:
            with safe_path():
                self._process.start()
        except (OSError, EOFError) as error:  # what children are forked from has ended
            raise EnvironmentProblem(f"{_NO_CHILD}: {error}") from None
        theirs.close()
        self._works = False
        self._job: Job | None = None
        self._watchdog: Watchdog | None = None
        self.alive = True

    @property
    def ends(self) -> float:
        """When to look whether it hangs, on the monotonic clock."""
        return self._watchdog.ends if self._watchdog else inf

    def give(self, job: Job) -> None:
        """Let it do a job."""
        self._job, self._watchdog = job, None
        with suppress(BrokenPipeError, ConnectionResetError):  # where answers are read it will show
            self.pipe.send(job)

    def answer(self) -> Verdict | None:
        """Its verdict, or None if there is none yet; to be asked once there is something to read or
        `ends` is past. Raises the CudareduceError that it sends."""
        assert self._job is not None
        if not self.pipe.poll():
            if self._watchdog is None or not self._watchdog.overdue():
                return None
            self.kill()
            limit_s = self._job.limit_s
            why = f"{HANGS} {limit_s:.4g} s: it hangs, or --time-limit is too short"
            if self._job.spec.timed:
                return told(self._job, Verdict("fail", why))
            # Slowness is the emulator's own, and what it saw to wait for ever it has said.
            small = _smaller(self._job.prepared.case.kernel)
            return told(self._job, skipped("time", f"cannot be decided here: {why}{small}"))
        try:
            said = self.pipe.recv()
        except Exception:  # it has ended, or a kernel has written to where it answers
            self._process.join(_END_WAIT_S)
            reason = self._last_line(self._process.exitcode)
            self.kill()
            if not self._works:
                raise EnvironmentProblem(f"{_NO_CHILD}: {reason}") from None
            return told(self._job, Verdict("fail", reason))
        self._works = True
        if isinstance(said, list):
            self._print(said)
            return None
        if said == STARTED:
            return None
        if said == COMPILED:
            pid = self._process.pid or 0
            self._watchdog = Watchdog(pid, self._job.limit_s, wall=self._job.wall)
            return None
        if isinstance(said, CudareduceError):
            raise said
        assert isinstance(said, Verdict)
        if any(words in said.reason for words in _TRESPASSES):
            self.kill()  # what it has overwritten may be what the next job needs
        return said

    def kill(self) -> None:
        """End it with all that it has started."""
        if not self.alive:
            return
        self.alive = False
        end_group(self._process, _KILL_WAIT_S)  # a driver may take its time to end a kernel
        self.pipe.close()
        self._log.unlink(missing_ok=True)

    def _last_line(self, code: int | None) -> str:
        """What it said last on standard error, else how it ended."""
        lines = self._log.read_text(errors="replace").splitlines()
        if lines:
            return resolve_locations(lines[-1])
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with code {code}" if code is not None else "it answers nonsense"


def _answers(busy: Mapping[_Child, object], deadline: Deadline) -> Iterator[tuple[_Child, Verdict]]:
    """What children that have something to say, or are overdue, have found; none once the deadline
    has passed."""
    ends = min(child.ends for child in busy)
    wait_s = min(max(0.0, ends - monotonic()), deadline.left_s)
    ready = connection.wait([child.pipe for child in busy], None if wait_s == inf else wait_s)
    for child in list(busy):
        if child not in busy:  # of a case that has failed meanwhile
            continue
        if child.pipe in ready or child.ends <= monotonic():
            verdict = child.answer()
            if verdict is not None:
                yield child, verdict
