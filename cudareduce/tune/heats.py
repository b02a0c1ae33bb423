"""Heats of a race on the GPU: launch shapes in one context, on one input, each judged beforehand.

One context favours some by 2 % on an H200, where their buffers happen to lie. So a race only says
who is close; what is said of those comes from fresh contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from statistics import median

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, CudareduceError, OutOfMemory
from cudareduce.intervals import known
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.problem.operators import Reduction
from cudareduce.progress import Progress
from cudareduce.timing.rounds import Context, new_context, warm_up
from cudareduce.timing.sampling import COLD, sampler
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.result_monitor import TimedData

#: Launches of an entrant in half a round: one sample of short kernels.
_LAUNCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`rows` reductions of `n` elements each."""

    reduction: Reduction
    n: int
    rows: int


class Heats:
    """Measures entrants by their names. `unfit` tells why others could not be launched or compiled,
    `wrong` what is wrong with answers."""

    def __init__(
        self, context: Context[DeviceTimer], unfit: Mapping[str, str], wrong: Mapping[str, str],
        deadline: Deadline, progress: Progress,
    ) -> None:  # fmt: skip
        self._deadline, self._progress = deadline, progress
        self.unfit, self.wrong = unfit, wrong
        timer, entrants = context.timer, context.entrants
        costs_us = warm_up(timer, entrants, deadline).costs_us if entrants else {}
        self._samplers = {
            name: sampler(timer, COLD, run, costs_us[name], _LAUNCHES, alone=False)
            for name, run in entrants.items()
        }

    @property
    def names(self) -> list[str]:
        """Whoever gives right answers."""
        return list(self._samplers)

    def heat(self, names: Sequence[str], rounds: int) -> dict[str, list[float | None]]:
        """The medians of rounds in which all of these took turns, forward and backward; nothing
        once time is spent. The GPU is warm: a heat begins at once."""
        found: dict[str, list[float | None]] = {}
        for _ in range(rounds):
            taken: dict[str, list[float]] = {name: [] for name in names}
            for name in (*names, *reversed(names)):
                samples, _ = self._samplers[name].passed(self._deadline)
                taken[name] += [sample.us for sample in samples]
                if self._deadline.passed:
                    return found  # what is half a round is none
            for name, us in taken.items():
                found.setdefault(name, []).append(median(us) if us else None)
        self._progress.step()
        leader = min(found, key=lambda name: median(known(found[name]) or [inf]), default="")
        self._progress.now(f"{leader} leads {len(names)}")
        return found


@contextmanager
def heats(
    home: TimedBackend, monitor: Monitor, problem: Problem, cases: Sequence[Case],
    deadline: Deadline, progress: Progress,
) -> Iterator[Heats]:  # fmt: skip
    """Cases in a context of their own, on a random input. May raise OutOfMemory."""
    limits, reduction = home.limits(), problem.reduction
    plans = {case: case.plan(problem.n, problem.rows, limits) for case in cases}
    data = TimedData("random", reduction, problem.n, problem.rows, 1, plans.values())
    unfit: dict[str, str] = {}
    wrong: dict[str, str] = {}

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        given = backend.upload(data.elements)
        built = build(backend, {case: [plan] for case, plan in plans.items()}, deadline=deadline)
        entrants: dict[str, Launch] = {}
        for case, plan in plans.items():
            name, made = case.name or case.kernel.id, built.get(case)
            try:
                if made is None or isinstance(made, BuildError):
                    raise made or BuildError("there was no time to compile it")
                bound = Bound(backend, plan, made, given)
                why = _why_wrong(bound, data)
            except OutOfMemory:
                raise
            except CudareduceError as error:  # it takes more of an SM than there is
                unfit[name] = str(error).splitlines()[0]
                continue
            if why:
                wrong[name] = why
            else:
                entrants[name] = bound.run
        _ = timer.displace  # allocates
        return entrants

    with new_context(home, monitor, set_up) as context:
        yield Heats(context, unfit, wrong, deadline, progress)


def _why_wrong(bound: Bound, data: TimedData) -> str | None:
    """What is wrong with the answer of one launch from poisoned memory; None if nothing is."""
    bound.poison()
    bound.run()
    verdict = data.judged(bound.plan, bound.answers(), 0)
    damage = bound.damage()
    if damage or verdict is None or verdict.outcome != "fail":
        return damage
    return verdict.reason
