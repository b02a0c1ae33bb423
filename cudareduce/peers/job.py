"""Jobs for the worker that runs libraries, their outcomes, and what a job is run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from cudareduce.backend import Buffer, Launch, TimedBackend
from cudareduce.backends import BackendSpec
from cudareduce.errors import CudareduceError, OutOfMemory
from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.library.kernel import Kernel
from cudareduce.machine.device import Conditions
from cudareduce.peers.catalogue import Listing
from cudareduce.peers.contract import (
    AbsentError,
    DeviceInput,
    Library,
    PreparedCall,
    ResultError,
    as_answers,
)
from cudareduce.problem.inputs import Array
from cudareduce.problem.operators import Reduction
from cudareduce.report.numbers import sms_text
from cudareduce.timing.rounds import Timing
from cudareduce.timing.sampling import MAX_LAUNCHES, Method
from cudareduce.verify.verdict import Verdict, skipped
from cudareduce.workers import Parent

#: Reasons for a library without a verdict since the time was spent.
CUT = "--max-time was spent before it was tried"
UNVERIFIED = "--max-time was spent before it was verified"


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a timed input: rows with `more` elements than requested, starting `offset` elements
    after an aligned address."""

    more: int = 0
    offset: int = 0

    def shape(self, shape: Shape) -> Shape:
        """The requested shape in this layout."""
        return shape[0] + self.more, shape[1]


#: The requested layout, and layouts for which code falls back to loads of single elements.
PLAIN, ODD = Layout(), (Layout(more=1), Layout(offset=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify libraries on `shapes`, then time them on the last shape in the same rounds as
    `kernels`, which have no programs yet.

    The last `asked` shapes were requested by the user. Each of `layouts` is timed in the same
    rounds, with at most `most` launches per half round; `elsewhere` replaces a kernel, by its index
    and the number of the layout, in other layouts than the first. `listings` are the modules of the
    libraries, `left_out` the names to skip, `alone` the one library to run. Without `rounds`
    nothing is timed. `only` is the one pattern to verify with, `deadline_s` the time left of
    `max_time_s`. `folder` keeps compiled code; `ours` is the number of other processes of this run.
    """

    spec: BackendSpec
    listings: tuple[Listing, ...]
    reduction: Reduction
    shapes: tuple[Shape, ...]
    folder: str
    kernels: tuple[tuple[Case, Plan], ...] = ()
    left_out: frozenset[str] = frozenset()
    asked: int = 1
    alone: str | None = None
    methods: tuple[Method, ...] = ()
    rounds: int = 0
    energy: bool = False
    pattern: str = "random"
    only: str | None = None
    seed: int = 0
    deadline_s: float | None = None
    max_time_s: float | None = None
    layouts: tuple[Layout, ...] = (PLAIN,)
    elsewhere: Mapping[tuple[int, int], Case] = field(default_factory=dict)
    most: int = MAX_LAUNCHES
    ours: int = 1

    @property
    def problem(self) -> Problem:
        """The timed problem."""
        return self.problem_of(PLAIN)

    def problem_of(self, layout: Layout) -> Problem:
        """The timed problem in a layout."""
        return self.problem_at(layout.shape(self.shapes[-1]))

    def problem_at(self, shape: Shape) -> Problem:
        """The reduction at a shape."""
        return Problem(self.reduction, *shape)

    def cases(self, number: int) -> list[Case]:
        """The kernels in the layout of this number, in order."""
        return [
            self.elsewhere.get((place, number), case)
            for place, (case, _) in enumerate(self.kernels)
        ]

    @property
    def odd(self) -> bool:
        """True if layouts are timed against each other."""
        return len(self.layouts) > 1

    def libraries(self) -> list[Library]:
        """The libraries to run."""
        if self.alone is not None:
            return [peer for peer in self._all() if peer.name == self.alone]
        return [peer for peer in self._all() if peer.context != "own"]

    def own(self) -> list[str]:
        """The names of libraries that need a process of their own."""
        return [peer.name for peer in self._all() if peer.context == "own"]

    def _all(self) -> list[Library]:
        found = [peer for listing in self.listings for peer in listing.libraries()]
        if not self.spec.timed:
            found = [made for peer in found if (made := peer.for_cpu())]
        return [peer for peer in found if peer.name not in self.left_out]

    def without(self, name: str) -> Job:
        """The job without one library."""
        return replace(self, left_out=self.left_out | {name})


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryResult:
    """The result of one library: `called` is the exact call, `host_us` the host time of a call as
    users make it, None if not measured; `no_graph` is why it cannot be captured in a graph."""

    verdict: Verdict
    called: str | None = None
    version: str | None = None
    host_us: float | None = None
    no_graph: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The result of one timing method: timings and joules per launch by the name of a library or
    kernel, `keyed` by layout; the fastest read-only launch; and the conditions of the rounds."""

    timings: Mapping[str, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    conditions: Conditions = field(default_factory=Conditions)
    story: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    joules: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a job: results by library, `keyed` by layout; verdicts by the index of a
    kernel and layout; passes by the label of the method."""

    peers: Mapping[str, LibraryResult] = field(default_factory=dict)
    kernels: Mapping[tuple[int, int], Verdict] = field(default_factory=dict)
    passes: Mapping[str, Pass] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def kernel_name(plan: Plan) -> str:
    """A name that is unique among the kernels of a job."""
    on = f" on {sms_text(plan.sms)}" if plan.sms else ""
    return f"{plan.kernel.id}{on}"


def keyed(name: str, layout: int) -> str:
    """The key of a library or kernel in the layout of this number."""
    return f"{name} {layout}" if layout else name


def case_of(peer: Library | str, reduction: Reduction) -> Case:
    """A library as a case: a kernel without a launch configuration."""
    name = peer if isinstance(peer, str) else peer.name
    kernel = Kernel(
        id=f"peer:{name}", path=Path(name), family="peer", text="", title=name, change="",
        scope="rows", grid="one", walk="tile", finish="none", block=0, blocks=(0,), foreign=False,
    )  # fmt: skip
    return Case(kernel, reduction, 0, 0)


def plan_of(case: Case, problem: Problem) -> Plan:
    """The plan of a library call. Its summation order is unknown, so the depth is n - 1."""
    return Plan(case.kernel, problem, 0, 0, (), {}, None, max(problem.n - 1, 0))


@cache
def plan_for(peer: str, problem: Problem) -> Plan:
    """The plan of a library by its name, cached since verdicts are cached by plan."""
    return plan_of(case_of(peer, problem.reduction), problem)


#: Parts of error messages of libraries, and their meaning.
_ERROR_MEANINGS = (
    (("no kernel image", "nokernelimage", "no binary for gpu"),
     "has no code for this GPU's architecture"),
    (("out of memory", "outofmemory", "alloc_failed"), "found no memory on the GPU for its own"),
    (("driver version is insufficient", "driver is too old"), "wants a newer driver"),
)  # fmt: skip
_LONGEST = 160


def absent(peer: Library, error: Exception) -> Verdict:
    """The verdict on a library that cannot be imported, or is too old."""
    if isinstance(error, AbsentError):
        return skipped("machine", f"{error}: {peer.upgrade}")
    name = getattr(error, "name", None)
    if isinstance(error, ModuleNotFoundError) and name:
        return skipped("machine", f"not installed: {peer.install}")
    return not_imported(peer, line(error))


def not_imported(peer: Library, how: str) -> Verdict:
    """The verdict on a library whose import fails."""
    return skipped("machine", f"cannot be imported ({how}): {peer.upgrade}")


def faulty(peer: Library, error: Exception) -> Verdict:
    """The verdict on a library that raises an error when it is prepared or called, or returns
    something other than results."""
    text = line(error)
    if isinstance(error, ResultError):
        return Verdict("fail", str(error))
    if isinstance(error, AbsentError | ImportError):
        return absent(peer, error)
    if isinstance(error, MemoryError) and "out of memory" not in text.lower():
        return skipped("machine", f"found no memory on the host for its own ({text})")
    if isinstance(error, OutOfMemory | MemoryError):
        return skipped("machine", f"found no memory on the GPU for its own ({text})")
    for words, meaning in _ERROR_MEANINGS:
        if any(word in text.lower() for word in words):
            advice = f": {peer.upgrade}" if "architecture" in meaning else ""
            return skipped("machine", f"{meaning} ({text}){advice}")
    return skipped("machine", f"raises {text}")  # without a result nothing is wrong


def line(error: Exception) -> str:
    """The type of an error and the first line of its message."""
    lines = _message(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _message(error: Exception) -> str:
    """The message of an error, which code of the library may fail to format."""
    try:
        return str(error)
    except Exception:
        return ""


class Runtimes:
    """Detects libraries that load a second CUDA runtime; `remarks` has a remark by library."""

    def __init__(self) -> None:
        self._held = runtimes()
        self.remarks: dict[str, str] = {}

    def after(self, peer: Library) -> None:
        """Check for a new runtime after the import of a library."""
        now = runtimes()
        new = [name for name in now if name not in self._held]
        if new and self._held:
            self.remarks[peer.name] = (
                f"brought {', '.join(new)} into a process that had {', '.join(self._held)}: name "
                "it alone with --peers where its figures look odd"
            )
        self._held = now


def runtimes() -> list[str]:
    """File names of the CUDA runtimes that this process has loaded."""
    return sorted(set(_mapped("libcudart")))


def _mapped(name: str) -> Iterator[str]:
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        path = line.partition("/")[2]
        file = path.rpartition("/")[2]
        if file.startswith(name):
            yield file


#: Phases of a library: importing and preparing (compiling) have a longer time limit.
Phase = Literal["imports", "prepares", "runs"]


@dataclass(frozen=True, slots=True)
class At:
    """The worker has begun a phase of the library `name`, or of none if that is empty. If there are
    `names`, the index of the last heartbeat tells whose launch is running."""

    name: str = ""
    phase: Phase = "prepares"
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundDone:
    """A round of the timing is done."""


class BrokenError(CudareduceError):
    """An error of one library has made the device unusable for this process."""

    def __init__(self, name: str, verdict: Verdict) -> None:
        super().__init__(name, verdict)
        self.name, self.verdict = name, verdict


@dataclass(frozen=True, slots=True)
class Reporter:
    """Reports to the parent which library is running, so that a crash is attributed to it."""

    parent: Parent
    names: list[str] = field(default_factory=list)

    def at(self, name: str, phase: Phase = "runs") -> None:
        """Report that a library begins a phase; none, if the name is empty."""
        self.parent.send(At(name, phase))

    def times(self) -> None:
        """Report that from now on heartbeats tell which `reported` launch is running."""
        self.parent.send(At("", "runs", tuple(self.names)))

    def round_done(self) -> None:
        """Report that a round of the timing is done."""
        self.parent.send(RoundDone())

    def reported(self, name: str, run: Launch) -> Launch:
        """A launch that first sends a heartbeat with its index."""
        if name not in self.names:
            self.names.append(name)
        index, beat = self.names.index(name), self.parent.beat

        def launch() -> None:
            beat(index)
            run()

        return launch

    @property
    def last(self) -> str:
        """The name of the last launch."""
        return self.names[self.parent.beat_index] if self.names else ""


@dataclass(frozen=True, slots=True)
class Bound:
    """A prepared call with the buffer `given` for its results."""

    peer: Library
    plan: Plan
    ready: PreparedCall
    given: Buffer
    backend: TimedBackend

    @property
    def run(self) -> Launch:
        """Enqueues the call."""
        return self.ready.run

    @property
    def out(self) -> Buffer | None:
        """The buffer of results, None if the library has its own."""
        return self.given if self.ready.fetch is None else None

    @property
    def own(self) -> tuple[Buffer, ...]:
        """Buffers that no other call may write to."""
        return (self.given,)

    def poison(self, byte: int = 0xFF) -> None:
        """Overwrite the results."""
        self.backend.poison(self.given, byte)

    def reset(self) -> None:
        """Overwrite the results after another call has written to them."""
        self.poison()

    def answers(self) -> Array:
        """Synchronize and copy the results to the host. Raises ResultError."""
        problem = self.plan.problem
        if self.ready.fetch is None:
            return self.backend.download(self.given, problem.reduction.result_dtype, problem.rows)
        self.backend.synchronize()
        return as_answers(problem, self.ready.fetch())

    def damage(self) -> str | None:
        """A description of writes outside of the results; None if there are none."""
        found = self.backend.damage(self.given)
        return f"it wrote outside its answers: {found}" if found else None


@dataclass(frozen=True, slots=True)
class Memory:
    """Buffers that are freed together."""

    backend: TimedBackend
    held: list[Buffer] = field(default_factory=list)

    def allocate(self, nbytes: int) -> int:
        """The address of newly allocated bytes. Raises OutOfMemory."""
        self.held.append(self.backend.allocate(nbytes))
        return self.held[-1].address

    def upload(self, array: Array) -> int:
        """The address of a copy of an array. Raises OutOfMemory."""
        self.held.append(self.backend.upload(array))
        return self.held[-1].address

    def bind(
        self, peer: Library, problem: Problem, data: Array, start: Buffer, folder: str
    ) -> Bound:
        """A library call, prepared for an input. Raises whatever the library raises."""
        backend = self.backend
        out = backend.allocate(problem.rows * problem.reduction.result_size)
        self.held.append(out)
        major, minor = (backend.info().cc or "0.0").split(".")
        given = DeviceInput(
            problem=problem, data=data, address=start.address, out=out.address,
            stream=backend.stream_handle, native=getattr(backend, "stream", None),
            allocate=self.allocate, upload=self.upload, arch=10 * int(major) + int(minor),
            folder=folder,
        )  # fmt: skip
        return Bound(peer, plan_for(peer.name, problem), peer.prepare(given), out, backend)


@contextmanager
def memory(backend: TimedBackend) -> Iterator[Memory]:
    """Buffers that are freed when the block is left."""
    made = Memory(backend)
    try:
        yield made
    finally:
        backend.free(*made.held)


def verdict_on(peer: Library, error: Exception, backend: TimedBackend, where: str = "") -> Verdict:
    """The verdict on a library that raised an error; `where` precedes the reason. Raises
    BrokenError if the device is unusable after it."""
    verdict = faulty(peer, error)
    if verdict.outcome == "fail":
        verdict = replace(verdict, reason=where + verdict.reason)
    try:
        backend.finish()
    except Exception:
        raise BrokenError(peer.name, verdict) from None
    return verdict
