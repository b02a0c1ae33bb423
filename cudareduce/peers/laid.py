"""The inputs of a job that is timed, each as it is laid out in memory, and what they must give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cudareduce.backend import Buffer, TimedBackend
from cudareduce.device import DeviceLimits
from cudareduce.launch.bound import Bound as KernelBound
from cudareduce.launch.case import planned
from cudareduce.launch.plan import Plan, Problem
from cudareduce.peers.contract import Peer
from cudareduce.peers.job import Found, Job, Layout, case_of, kernel_name, keyed, plan_of
from cudareduce.peers.scene import Bound
from cudareduce.problem.inputs import Array, make
from cudareduce.problem.reference import Reference, reference
from cudareduce.verify.verdict import Verdict, judge


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of one problem, and right answers by the number of rows."""

    problem: Problem
    pattern: str
    data: Array
    refs: dict[int, Reference] = field(default_factory=dict)

    def judged(self, plan: Plan, answers: Array) -> Verdict | None:
        """The verdict on answers, None where the pattern does not decide. Kernels of warps have
        rows of their own."""
        rows = plan.problem.rows
        if rows not in self.refs:
            self.refs[rows] = reference(self.problem.reduction, self.data, rows)
        return judge(plan, answers, self.refs[rows], self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """One layout by its `number`, with the kernels by their places and the peers that take it."""

    number: int
    layout: Layout
    elements: Elements
    plans: Mapping[int, Plan]
    peers: tuple[Peer, ...]

    @property
    def problem(self) -> Problem:
        """What is reduced there."""
        return self.elements.problem

    def upload(self, backend: TimedBackend) -> Buffer:
        """The input on the device. Raises OutOfMemory."""
        size = self.problem.reduction.dtype.size
        return backend.upload(self.elements.data, self.layout.offset * size)


@dataclass(frozen=True, slots=True)
class Tied:
    """An entrant with its memory: a peer's call, or a kernel by its place."""

    bound: Bound | KernelBound
    laid: Laid
    place: int | None = None

    @property
    def plan(self) -> Plan:
        """What its answers are judged by."""
        if isinstance(self.bound, KernelBound):
            return self.bound.plan
        return plan_of(case_of(self.bound.peer, self.laid.problem.reduction), self.laid.problem)

    @property
    def name(self) -> str:
        """What the parent knows it by."""
        if isinstance(self.bound, KernelBound):
            return keyed(kernel_name(self.bound.plan), self.laid.number)
        return keyed(self.bound.peer.name, self.laid.number)

    def verdict(self, backend: TimedBackend) -> Verdict | None:
        """On the answers that it has left; None where the input does not decide."""
        return self.laid.elements.judged(self.plan, self._answers(backend))

    def _answers(self, backend: TimedBackend) -> Array:
        one = self.bound
        return one.answers() if isinstance(one, KernelBound) else one.answers(backend)


def plans_of(job: Job, number: int, limits: DeviceLimits) -> tuple[dict[int, Plan], dict[int, str]]:
    """Plans of the kernels that take a layout, by their places, and why the others do not."""
    if not number:
        return {place: plan for place, (_, plan) in enumerate(job.kernels)}, {}
    shape = job.layouts[number].shape(job.shapes[-1])
    plans: dict[int, Plan] = {}
    refusals: dict[int, str] = {}
    for place, (case, _) in enumerate(job.kernels):
        made, refused = planned(case, [shape], limits)
        if shape in made:
            plans[place] = made[shape]
        else:
            refusals[place] = refused[shape]
    return plans, refusals


def laid_out(job: Job, found: Mapping[str, Found], limits: DeviceLimits) -> list[Laid]:
    """The layouts of a job with the peers that were right there, and are timed on the device."""
    elements: dict[Problem, Elements] = {}
    made = []
    for number, layout in enumerate(job.layouts):
        problem = job.problem_of(layout)
        if problem not in elements:
            data = make(job.pattern, job.reduction, problem.n, problem.rows, job.seed + 1)
            elements[problem] = Elements(problem, job.pattern, data)
        plans, _ = plans_of(job, number, limits)
        peers = tuple(
            peer for peer in job.peers()
            if not peer.host_only and found[keyed(peer.name, number)].verdict.outcome == "pass"
        )  # fmt: skip
        made.append(Laid(
            number=number, layout=layout, elements=elements[problem], plans=plans, peers=peers,
        ))  # fmt: skip
    return made
