"""The inputs of a job that is timed, each as it is laid out in memory, and what they must give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudareduce.backend import TimedBackend
from cudareduce.launch.bound import Bound as KernelBound
from cudareduce.launch.case import planned
from cudareduce.launch.plan import Plan, Problem
from cudareduce.library.condition import ALIGNED
from cudareduce.machine.device import DeviceLimits
from cudareduce.peers.contract import Peer
from cudareduce.peers.job import Found, Job, Layout, kernel_name, keyed, plan_for
from cudareduce.peers.scene import Bound
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.result_monitor import TimedData, TimedInput
from cudareduce.verify.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """One layout by its `number`, with the kernels by their places and the peers that take it."""

    number: int
    layout: Layout
    problem: Problem
    data: TimedData
    plans: Mapping[int, Plan]
    peers: tuple[Peer, ...]

    def upload(self, backend: TimedBackend, timer: DeviceTimer) -> TimedInput:
        """The input on the device. Raises OutOfMemory."""
        size = self.problem.reduction.dtype.size
        return TimedInput(backend, timer, self.data, self.layout.offset * size)


@dataclass(frozen=True, slots=True)
class Tied:
    """An entrant with its memory and its input: a peer's call, or a kernel by its place."""

    bound: Bound | KernelBound
    laid: Laid
    given: TimedInput
    place: int | None = None

    @property
    def name(self) -> str:
        """What the parent knows it by."""
        if isinstance(self.bound, KernelBound):
            return keyed(kernel_name(self.bound.plan), self.laid.number)
        return keyed(self.bound.peer.name, self.laid.number)

    def verdict(self) -> Verdict | None:
        """On the answers that it has left; None where the input does not decide."""
        data, number = self.given.data, self.given.number
        return data.judged(self.bound.plan, self.bound.answers(), number)


def plans_of(job: Job, number: int, limits: DeviceLimits) -> tuple[dict[int, Plan], dict[int, str]]:
    """Plans of the kernels that take a layout, by their places, and why the others do not."""
    if not number:
        return {place: plan for place, (_, plan) in enumerate(job.kernels)}, {}
    shape = job.layouts[number].shape(job.shapes[-1])
    plans: dict[int, Plan] = {}
    refusals: dict[int, str] = {}
    for place, case in enumerate(job.cases(number)):
        made, refused = planned(case, [shape], limits)
        if job.layouts[number].offset and case.asks.aligned:
            refusals[place] = f"is right if {ALIGNED}"
        elif shape in made:
            plans[place] = made[shape]
        else:
            refusals[place] = refused[shape]
    return plans, refusals


def laid_out(job: Job, found: Mapping[str, Found], limits: DeviceLimits) -> list[Laid]:
    """The layouts of a job with the peers that were right there, and are timed on the device."""
    inputs: dict[Problem, TimedData] = {}
    made = []
    for number, layout in enumerate(job.layouts):
        problem = job.problem_of(layout)
        plans, _ = plans_of(job, number, limits)
        if problem not in inputs:
            all_plans = [plan_for("", problem), *plans.values()]
            inputs[problem] = TimedData(
                job.pattern, job.reduction, problem.n, problem.rows, job.seed + 1, all_plans
            )
        peers = tuple(
            peer for peer in job.peers()
            if not peer.host_only and found[keyed(peer.name, number)].verdict.outcome == "pass"
        )  # fmt: skip
        made.append(Laid(
            number=number, layout=layout, problem=problem, data=inputs[problem], plans=plans,
            peers=peers,
        ))  # fmt: skip
    return made
