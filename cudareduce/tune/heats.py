"""Heats of a race on the GPU: launch shapes in one context, on one input, each judged beforehand.

One context favours some by 2 % on an H200, where their buffers happen to lie. So a race only says
who is close; what is said of those comes from fresh contexts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.bench.timed_input import TimedData
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, CudareduceError, OutOfMemory
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan
from cudareduce.problem.operators import Reduction
from cudareduce.progress import Progress
from cudareduce.timing.contexts import Context, new_context, staying
from cudareduce.timing.rounds import measure
from cudareduce.timing.timer import DeviceTimer

#: Launches of an entrant in half a round: one sample of short kernels.
_LAUNCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`rows` reductions of `n` elements each."""

    reduction: Reduction
    n: int
    rows: int


class Interrupted(Exception):
    """Ctrl-C ended a heat."""


class Heats:
    """Measures entrants by their names. `unfit` tells why others could not be launched or compiled,
    `wrong` what is wrong with answers."""

    def __init__(
        self, context: Context[DeviceTimer], unfit: Mapping[str, str], wrong: Mapping[str, str],
        deadline: Deadline, progress: Progress,
    ) -> None:  # fmt: skip
        self._context, self._deadline, self._progress = context, deadline, progress
        self.unfit, self.wrong = unfit, wrong

    @property
    def names(self) -> list[str]:
        """Whoever gives right answers."""
        return list(self._context.entrants)

    def heat(self, names: Sequence[str], rounds: int) -> dict[str, tuple[float | None, ...]]:
        """The medians of rounds in which all of these took turns; nothing once time is spent.
        Raises Interrupted after Ctrl-C."""
        entrants = {name: self._context.entrants[name] for name in names}
        self._progress.now(f"{len(names)} launch shapes")
        measured = measure(
            staying(Context(self._context.timer, entrants)), rounds, deadline=self._deadline,
            most=_LAUNCHES,
        )  # fmt: skip
        self._progress.step()
        if measured.interrupted:
            raise Interrupted
        return {name: timing.by_round for name, timing in measured.timings.items()}


@contextmanager
def heats(
    home: TimedBackend, monitor: Monitor, problem: Problem, cases: Sequence[Case],
    deadline: Deadline, progress: Progress,
) -> Iterator[Heats]:  # fmt: skip
    """Cases in a context of their own, on a random input. May raise OutOfMemory."""
    limits = home.limits()
    plans = {case: case.plan(problem.n, problem.rows, limits) for case in cases}
    data = TimedData(
        "random", problem.reduction, problem.n, problem.rows, 1, plans.values()
    )  # fmt: skip
    unfit: dict[str, str] = {}
    wrong: dict[str, str] = {}

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        given = backend.upload(data.elements)
        entrants: dict[str, Launch] = {}
        wanted = {case: [plan] for case, plan in plans.items()}
        for case, made in build(backend, wanted, deadline=deadline).items():
            name = case.name or case.kernel.id
            try:
                if isinstance(made, BuildError):
                    raise made
                bound = Bound(backend, plans[case], made, given)
                why = _why_wrong(bound, data, plans[case])
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


def _why_wrong(bound: Bound, data: TimedData, plan: Plan) -> str | None:
    """What is wrong with the answer of one launch from poisoned memory; None if nothing is."""
    bound.poison()
    bound.run()
    verdict = data.judged(plan, bound.answers(), 0)
    damage = bound.damage()
    if damage or (verdict is not None and verdict.outcome == "fail"):
        return damage or (verdict.reason if verdict else "")
    return None
