"""A kernel in contexts of its own, and in the primary one that libraries insist on: A/A of the two.

NVIDIA's header discourages several contexts, and a figure from a library stands in the primary one:
so it is measured what that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from statistics import median

from cudareduce.backend import TimedBackend
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import make
from cudareduce.report.numbers import short_size
from cudareduce.report.section import Section
from cudareduce.timing.contexts import Context
from cudareduce.timing.timer import DeviceTimer

#: Where a launch is short enough for a context to show, and the default size of bench.
SIZES = (2**24, 2**25)
#: Of each of the two, taking turns.
TURNS = 10
_STEPS, _STEP_BYTES = 2048, 512

Enter = Callable[[], AbstractContextManager[Context[DeviceTimer]]]


@dataclass(frozen=True, slots=True)
class Setting:
    """Medians of one kernel in us: each in a fresh context, and each in the primary one, where
    buffers lay elsewhere."""

    kernel: str
    n: int
    fresh_us: tuple[float, ...]
    primary_us: tuple[float, ...]

    @property
    def slower(self) -> float:
        """By which share the primary context reads longer times."""
        return median(self.primary_us) / median(self.fresh_us) - 1

    @property
    def scatter(self) -> float | None:
        """How many times further its times lie apart; None where those of fresh ones are alike."""
        fresh = max(self.fresh_us) - min(self.fresh_us)
        return (max(self.primary_us) - min(self.primary_us)) / fresh if fresh else None


def taken_in_turns(
    kernel: str, n: int, fresh: Enter, primary: Enter, time: Callable[[Enter, int], float | None]
) -> Iterator[Setting]:
    """The times of both, every other turn the other way round; `time` is told how many there are
    yet to come."""
    taken: tuple[list[float], list[float]] = [], []
    for turn in range(TURNS):
        for k in (0, 1) if turn % 2 else (1, 0):
            us = time((fresh, primary)[k], 2 * (TURNS - turn))
            taken[k].extend([us] if us is not None else [])
    if min(map(len, taken)) > 1:  # one alone does not scatter
        yield Setting(kernel, n, tuple(taken[0]), tuple(taken[1]))


@contextmanager
def at_home(
    backend: TimedBackend, timer: DeviceTimer, case: Case, n: int
) -> Iterator[Context[DeviceTimer]]:
    """One reduction in the context that the process began with, the primary one, its buffers at
    other addresses each time."""
    with ExitStack() as stack:
        step = backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        stack.callback(backend.free, step)
        given = backend.upload(make("random", case.reduction, n, 1, 1))
        stack.callback(backend.free, given)
        plan = case.plan(n, 1, backend.limits())
        bound = Bound(backend, plan, programs_of(backend, {case: plan})[case], given)
        stack.callback(bound.release)
        yield Context(timer, {case.kernel.id: bound.run})


def on_settings(settings: Sequence[Setting]) -> list[str]:
    """What they show, in words."""
    said = []
    for one in settings:
        share = 100 * one.slower
        word = f"{abs(share):.1f} % {'slower' if share > 0 else 'faster'} than"
        look = word if abs(share) >= 0.1 else "as fast as"
        apart = f" and scatters {one.scatter:.1f} times as much" if one.scatter else ""
        said.append(f"n = {one.n} {look} fresh ones{apart}")
    if not said:
        return []
    return [
        f"The primary context, which libraries insist on, reads {settings[0].kernel} at "
        f"{', at '.join(said)}: compare times within one of the two."
    ]


def settings_section(settings: Sequence[Setting]) -> Section:
    """Both, size by size."""
    rows = tuple(
        (short_size(one.n), name, f"{median(us):.2f}", f"{min(us):.2f}", f"{max(us):.2f}",
         f"{100 * (max(us) / min(us) - 1):.1f}%")
        for one in settings
        for name, us in (("fresh", one.fresh_us), ("primary", one.primary_us))
    )  # fmt: skip
    header = ("n", "context", "median us", "shortest us", "longest us", "apart")
    count = max(len(one.fresh_us) for one in settings)
    note = f"up to {count} of each, taking turns, with buffers at other addresses each time"
    title = f"{settings[0].kernel} in fresh contexts and in the primary one, cold"
    return Section(title, header, rows, (note,), 2)
