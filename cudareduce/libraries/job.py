"""Jobs of the worker processes that run libraries, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from cudareduce.backends.selection import BackendSpec
from cudareduce.catalog.kernel import Kernel
from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.libraries.catalogue import Listing, libraries_of
from cudareduce.libraries.contract import Library
from cudareduce.machine import Conditions
from cudareduce.reduction.operators import Reduction
from cudareduce.report.numbers import sms_text
from cudareduce.timing.rounds import Timing
from cudareduce.timing.sampling import MAX_LAUNCHES, Method
from cudareduce.verify.verdict import Verdict

#: Skip reasons if --max-time was spent.
CUT = "--max-time was spent before it was tried"
UNVERIFIED = "--max-time was spent before it was verified"


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a timed input: rows are `more` elements longer than requested, and start `offset`
    elements after an aligned address."""

    more: int = 0
    offset: int = 0

    def shape(self, shape: Shape) -> Shape:
        return shape[0] + self.more, shape[1]


#: The requested layout, and layouts in which vector loads are not possible.
PLAIN, ODD = Layout(), (Layout(more=1), Layout(offset=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify libraries on `shapes`, then time them on the last shape, in the same rounds as
    `kernels`.

    `listings` select the libraries; `left_out` are names to skip, `alone` is the only library to
    run. The last `requested` shapes are those requested by the user. All `layouts` are timed in the
    same rounds, with at most `most` launches per half round. `elsewhere` replaces kernels, by index
    and layout, in layouts other than the first. Without `rounds` nothing is timed. `only` restricts
    verification to one pattern. `deadline_s` is the time left of `max_time_s`. `folder` is the
    cache of compiled code. `ours` is the number of processes of this run on the GPU.
    """

    spec: BackendSpec
    listings: tuple[Listing, ...]
    reduction: Reduction
    shapes: tuple[Shape, ...]
    folder: str
    kernels: tuple[tuple[Case, Plan], ...] = ()
    left_out: frozenset[str] = frozenset()
    requested: int = 1
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

    def problem_of(self, layout: Layout) -> Problem:
        return Problem(self.reduction, *layout.shape(self.shapes[-1]))

    def cases(self, number: int) -> list[Case]:
        """The kernels of layout `number`, in the order of `kernels`."""
        return [
            self.elsewhere.get((index, number), case)
            for index, (case, _) in enumerate(self.kernels)
        ]

    @property
    def odd(self) -> bool:
        """True if several layouts are compared."""
        return len(self.layouts) > 1

    def libraries(self) -> list[Library]:
        """The libraries to run: `alone`, or all that share a process."""
        if self.alone is not None:
            return [library for library in self._all() if library.name == self.alone]
        return [library for library in self._all() if library.context != "own"]

    def own(self) -> list[str]:
        """The names of the libraries that need their own process."""
        return [library.name for library in self._all() if library.context == "own"]

    def _all(self) -> list[Library]:
        libraries = libraries_of(self.listings)
        if not self.spec.timed:
            libraries = [on_cpu for library in libraries if (on_cpu := library.for_cpu())]
        return [library for library in libraries if library.name not in self.left_out]

    def without(self, *names: str) -> Job:
        return replace(self, left_out=self.left_out.union(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryResult:
    """The result of one library. `called` is the call as text, `host_us` the host time of a call
    (None if not measured), `no_graph` why it cannot be captured in a CUDA graph."""

    verdict: Verdict
    called: str | None = None
    version: str | None = None
    host_us: float | None = None
    no_graph: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """The result of one timing method. `timings` and `joules` per launch are by library or kernel
    and layout (`keyed`). `ceiling` is the fastest read-only kernel, `conditions` the GPU's state,
    `story` the protocol of the rounds."""

    timings: Mapping[str, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    conditions: Conditions = field(default_factory=Conditions)
    story: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    joules: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a job: `results` by library and layout (`keyed`), verdicts on `kernels` by
    index and layout, `passes` by the label of the timing method."""

    results: Mapping[str, LibraryResult] = field(default_factory=dict)
    kernels: Mapping[tuple[int, int], Verdict] = field(default_factory=dict)
    passes: Mapping[str, Pass] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def kernel_name(plan: Plan) -> str:
    on = f" on {sms_text(plan.sms)}" if plan.sms else ""
    return f"{plan.kernel.id}{on}"


def keyed(name: str, layout: int) -> str:
    """The key of a library or kernel in a layout, by its number."""
    return f"{name} {layout}" if layout else name


def library_case(name: str, reduction: Reduction) -> Case:
    """A library call in the form of a case: a kernel without launch configuration."""
    kernel = Kernel(
        id=f"peer:{name}", path=Path(name), family="peer", text="", title=name, change="",
        scope="rows", grid="one", walk="tile", finish="none", block=0, blocks=(0,), foreign=False,
    )  # fmt: skip
    return Case(kernel, reduction, 0, 0)


@cache
def library_plan(name: str, problem: Problem) -> Plan:
    """The plan of a library call. Its depth is n - 1, the worst case, since the summation order is
    unknown. Cached, since error bounds are cached by plan."""
    kernel = library_case(name, problem.reduction).kernel
    return Plan(kernel, problem, 0, 0, (), {}, None, max(problem.n - 1, 0))
