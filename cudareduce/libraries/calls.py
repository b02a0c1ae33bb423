"""Library calls in a worker process: memory, verdicts on errors, and reports to the parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cudareduce.backends.protocol import Buffer, Launch, TimedBackend
from cudareduce.errors import CudareduceError, OutOfMemory
from cudareduce.launch.plan import Plan, Problem
from cudareduce.libraries.contract import (
    AbsentError,
    CallRequest,
    Library,
    ResultError,
    as_results,
)
from cudareduce.libraries.job import library_plan
from cudareduce.reduction.inputs import Array
from cudareduce.verify.verdict import Verdict, skipped
from cudareduce.workers import Parent


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A prepared call of a library. `run` enqueues it. Its results are in `buffer`, or returned by
    `fetch` if the library allocates them itself."""

    library: Library
    plan: Plan
    run: Launch
    fetch: Callable[[], Any] | None
    buffer: Buffer
    backend: TimedBackend

    @property
    def out(self) -> Buffer | None:
        return self.buffer if self.fetch is None else None

    @property
    def own(self) -> tuple[Buffer, ...]:
        """Buffers that no other call may write to."""
        return (self.buffer,)

    def poison(self, byte: int = 0xFF) -> None:
        self.backend.poison(self.buffer, byte)

    def reset(self) -> None:
        """Clear the results of other calls from the buffer."""
        self.poison()

    def results(self) -> Array:
        """Synchronize and copy the results to the host. Raises ResultError."""
        problem = self.plan.problem
        if self.fetch is None:
            return self.backend.download(self.buffer, problem.reduction.result_dtype, problem.rows)
        self.backend.synchronize()
        return as_results(problem, self.fetch())

    def damage(self) -> str | None:
        """A description of writes outside of the results; None if there are none."""
        damage = self.backend.damage(self.buffer)
        return f"it wrote outside its results: {damage}" if damage else None


@dataclass(frozen=True, slots=True)
class Memory:
    """Buffers that are freed together."""

    backend: TimedBackend
    buffers: list[Buffer] = field(default_factory=list)

    def keep(self, buffer: Buffer) -> Buffer:
        self.buffers.append(buffer)
        return buffer

    def prepare(
        self, library: Library, problem: Problem, data: Array, start: Buffer, folder: str
    ) -> LibraryCall:
        """Prepare a library call on the input at `start`, with results and workspace in this
        memory. Raises whatever the library raises."""
        backend = self.backend
        results = self.keep(backend.allocate(problem.rows * problem.reduction.result_size))
        major, minor = (backend.info().cc or "0.0").split(".")
        call = library.prepare(CallRequest(
            problem=problem, data=data, address=start.address, out=results.address,
            stream=backend.stream_handle, native=getattr(backend, "stream", None),
            allocate=lambda nbytes: self.keep(backend.allocate(nbytes)).address,
            upload=lambda array: self.keep(backend.upload(array)).address,
            arch=10 * int(major) + int(minor), folder=folder,
        ))  # fmt: skip
        plan = library_plan(library.name, problem)
        return LibraryCall(library, plan, call.run, call.fetch, results, backend)


@contextmanager
def open_memory(backend: TimedBackend) -> Iterator[Memory]:
    """Memory that is freed at the end of the block."""
    opened = Memory(backend)
    try:
        yield opened
    finally:
        backend.free(*opened.buffers)


#: Parts of error messages of libraries, and their meaning.
_ERROR_MEANINGS = (
    (("no kernel image", "nokernelimage", "no binary for gpu"),
     "has no code for this GPU's architecture"),
    (("out of memory", "outofmemory", "alloc_failed"), "found too little memory on the GPU"),
    (("driver version is insufficient", "driver is too old"), "needs a newer driver"),
)  # fmt: skip
_LONGEST = 160


class BrokenError(CudareduceError):
    """The device or the worker process is unusable after an error of library `name`; of no library
    if that is empty."""

    def __init__(self, name: str, verdict: Verdict) -> None:
        super().__init__(name, verdict)
        self.name, self.verdict = name, verdict


def verdict_on(library: Library, error: Exception, backend: TimedBackend) -> Verdict:
    """The verdict on a library that raised `error`. Raises BrokenError if the device is
    unusable."""
    verdict = error_verdict(library, error)
    try:
        backend.finish()
    except Exception:
        raise BrokenError(library.name, verdict) from None
    return verdict


def error_verdict(library: Library, error: Exception) -> Verdict:
    """The verdict on a library by the error of its preparation or call: fail if its results are
    malformed, else skip."""
    text = error_line(error)
    if isinstance(error, ResultError):
        return Verdict("fail", str(error))
    if isinstance(error, AbsentError | ImportError):
        return import_verdict(library, error)
    if isinstance(error, MemoryError) and "out of memory" not in text.lower():
        return skipped("machine", f"found too little memory on the host ({text})")
    if isinstance(error, OutOfMemory | MemoryError):
        return skipped("machine", f"found too little memory on the GPU ({text})")
    for words, meaning in _ERROR_MEANINGS:
        if any(word in text.lower() for word in words):
            advice = f": {library.upgrade}" if "architecture" in meaning else ""
            return skipped("machine", f"{meaning} ({text}){advice}")
    return skipped("machine", f"raises {text}")  # without a result nothing is wrong


def import_verdict(library: Library, error: Exception) -> Verdict:
    """The skip verdict on a library that is missing, too old, or cannot be imported."""
    if isinstance(error, AbsentError):
        return skipped("machine", f"{error}: {library.upgrade}")
    if isinstance(error, ModuleNotFoundError) and error.name:
        return skipped("machine", f"not installed: {library.install}")
    return import_failure(library, error_line(error))


def import_failure(library: Library, how: str) -> Verdict:
    return skipped("machine", f"cannot be imported ({how}): {library.upgrade}")


def error_line(error: Exception) -> str:
    """The type of an error and the first line of its message, shortened. Formatting a library's
    error may itself fail."""
    try:
        message = str(error).strip()
    except Exception:
        message = ""
    name = type(error).__name__
    text = f"{name}: {message.splitlines()[0].strip()}" if message else name
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


class Runtimes:
    """Detects libraries that load a second CUDA runtime. `remarks` holds a remark by library."""

    def __init__(self) -> None:
        self._known = runtimes()
        self.remarks: dict[str, str] = {}

    def after(self, library: Library) -> None:
        """Check for a new runtime after the import of a library."""
        now = runtimes()
        new = [name for name in now if name not in self._known]
        if new and self._known:
            self.remarks[library.name] = (
                f"loaded {', '.join(new)} into a process that had {', '.join(self._known)}: name "
                "it alone with --peers if its times look wrong"
            )
        self._known = now


def runtimes() -> list[str]:
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    names = {mapping.rpartition("/")[2] for mapping in maps.splitlines() if "/" in mapping}
    return sorted(name for name in names if name.startswith("libcudart"))


#: Phases of a library: importing and preparing (compiling) have a longer time limit.
Phase = Literal["imports", "prepares", "runs"]


@dataclass(frozen=True, slots=True)
class PhaseStart:
    """Message: the worker has begun a phase of library `name`; of no library if that is empty.
    During timing, the last heartbeat is the index in `names` of the library that is running."""

    name: str = ""
    phase: Phase = "prepares"
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundDone:
    """Message: the worker has completed a timing round."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Reports to the parent which library is running, so that a crash is attributed to it."""

    parent: Parent
    names: list[str] = field(default_factory=list)

    def begin(self, name: str, phase: Phase = "runs") -> None:
        self.parent.send(PhaseStart(name, phase))

    def begin_timing(self) -> None:
        """Report that heartbeats are now the indices of launches `with_heartbeat`."""
        self.parent.send(PhaseStart("", "runs", tuple(self.names)))

    def round_done(self) -> None:
        self.parent.send(RoundDone())

    def with_heartbeat(self, name: str, run: Launch) -> Launch:
        """A launch that first sends a heartbeat with the index of `name`."""
        if name not in self.names:
            self.names.append(name)
        index, beat = self.names.index(name), self.parent.beat

        def launch() -> None:
            beat(index)
            run()

        return launch

    @property
    def last(self) -> str:
        return self.names[self.parent.beat_index] if self.names else ""
