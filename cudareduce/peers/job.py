"""A job for the process that libraries run in, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from cudareduce.backends import BackendSpec
from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.library.kernel import Kernel
from cudareduce.machine.device import Conditions
from cudareduce.peers.catalogue import Listing
from cudareduce.peers.contract import Peer
from cudareduce.problem.operators import Reduction
from cudareduce.report.numbers import sms_text
from cudareduce.timing.rounds import Timing
from cudareduce.timing.sampling import MAX_LAUNCHES, Method
from cudareduce.verify.verdict import Verdict

#: Why a library has no verdict where there was no time: at all, or for all of it.
CUT = "--max-time was spent before it was tried"
UNVERIFIED = "--max-time was spent before it was verified"


@dataclass(frozen=True, slots=True)
class Layout:
    """How an input lies that is timed: of `more` elements a row than asked for, and `offset`
    elements behind an aligned start."""

    more: int = 0
    offset: int = 0

    def shape(self, shape: Shape) -> Shape:
        """What is asked for, so laid out."""
        return shape[0] + self.more, shape[1]


#: As asked for, and as arrays of users are: where code falls back to loads of single elements.
PLAIN, ODD = Layout(), (Layout(more=1), Layout(offset=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Verify libraries on `shapes`, the last of which, so many as are `asked`, were asked for; then
    time them on the last one, beside `kernels`, which come without programs. Each of several
    `layouts` of the input is timed in the same rounds, in at most so many launches of each half;
    `elsewhere` has, by their places and the numbers of layouts, what kernels are on others.

    `listings` say where the peers stand, `left_out` which of them are not to be tried. No `rounds`
    is no timing; `only` is the one pattern to verify with, `deadline_s` what it may take of the
    `max_time_s` that were asked for. `folder` is where what is compiled is kept, and `ours` how
    many processes of this run there are beside the one that does the job.
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
        """What is timed."""
        return self.problem_of(PLAIN)

    def problem_of(self, layout: Layout) -> Problem:
        """What is timed, so laid out."""
        return self.problem_at(layout.shape(self.shapes[-1]))

    def problem_at(self, shape: Shape) -> Problem:
        """The reduction at a shape."""
        return Problem(self.reduction, *shape)

    def cases(self, number: int) -> list[Case]:
        """What the kernels are on the layout of this number, by their places."""
        return [
            self.elsewhere.get((place, number), case)
            for place, (case, _) in enumerate(self.kernels)
        ]

    @property
    def odd(self) -> bool:
        """True if layouts are timed against each other."""
        return len(self.layouts) > 1

    def peers(self) -> list[Peer]:
        """Those that are to be tried."""
        if self.alone is not None:
            return [peer for peer in self._all() if peer.name == self.alone]
        return [peer for peer in self._all() if peer.context != "own"]

    def own(self) -> list[str]:
        """The names of those that want a process to themselves."""
        return [peer.name for peer in self._all() if peer.context == "own"]

    def _all(self) -> list[Peer]:
        found = [peer for listing in self.listings for peer in listing.peers()]
        if not self.spec.timed:
            found = [made for peer in found if (made := peer.for_cpu())]
        return [peer for peer in found if peer.name not in self.left_out]

    def without(self, name: str) -> Job:
        """The job, and one peer less."""
        return replace(self, left_out=self.left_out | {name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found of one peer: `called` is the very call, `host_us` what a call as people make
    it takes, None where that is not known; `no_graph` why it is not captured in a graph, where it
    was to be."""

    verdict: Verdict
    called: str | None = None
    version: str | None = None
    host_us: float | None = None
    no_graph: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one method found in one process: timings by the name of a peer or kernel, each
    `keyed` by its layout; the fastest read-only launch; how the rounds went; and the joules of a
    launch, by the same names."""

    timings: Mapping[str, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    conditions: Conditions = field(default_factory=Conditions)
    story: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    joules: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job gave: of each peer, `keyed` by its layout, of each kernel by its place and layout,
    and by each method's label."""

    peers: Mapping[str, Found] = field(default_factory=dict)
    kernels: Mapping[tuple[int, int], Verdict] = field(default_factory=dict)
    passes: Mapping[str, Pass] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def kernel_name(plan: Plan) -> str:
    """What tells a kernel from the others of a job."""
    on = f" on {sms_text(plan.sms)}" if plan.sms else ""
    return f"{plan.kernel.id}{on}"


def keyed(name: str, layout: int) -> str:
    """A peer or kernel on the layout of this number."""
    return f"{name} {layout}" if layout else name


def case_of(peer: Peer | str, reduction: Reduction) -> Case:
    """A peer in the place of a kernel: it has no launch shape of ours."""
    name = peer if isinstance(peer, str) else peer.name
    kernel = Kernel(
        id=f"peer:{name}", path=Path(name), family="peer", text="", title=name, change="",
        scope="rows", grid="one", walk="tile", finish="none", block=0, blocks=(0,), foreign=False,
    )  # fmt: skip
    return Case(kernel, reduction, 0, 0)


def plan_of(case: Case, problem: Problem) -> Plan:
    """What is known of how a library adds: nothing but that no element passes through more
    additions than there are."""
    return Plan(case.kernel, problem, 0, 0, (), {}, None, max(problem.n - 1, 0))


@cache
def plan_for(peer: str, problem: Problem) -> Plan:
    """The plan of a peer by its name: one and the same for one problem, since verdicts are kept by
    plans."""
    return plan_of(case_of(peer, problem.reduction), problem)
