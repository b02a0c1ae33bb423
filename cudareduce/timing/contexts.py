"""Where a round takes place: each half in a context of its own, so that no result rests on one.

Where a context and a buffer happen to lie in memory makes short launches faster or slower for as
long as they live. On an H200 contexts differ by 0.2 us a launch (V7 at 2^24 float32, three
launches: 25.6 to 26.1 us in twelve contexts), and one kernel's partials by up to 2 % from address
to address. Measured in a single context, that is a bias of the whole run; spread over rounds it is
noise, which the interval shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.timing.sampling import Timer, Watch
from cudareduce.timing.timer import DeviceTimer

#: Buffers are pushed about by up to so many steps from context to context.
_STEPS, _STEP_BYTES = 2048, 512

AnyTimer = TypeVar("AnyTimer", bound=Timer, covariant=True)


@dataclass(frozen=True, slots=True)
class Context(Generic[AnyTimer]):
    """A timer, and what is to be timed with it: launches by the names of the entrants, of which
    some are watched."""

    timer: AnyTimer
    entrants: Mapping[str, Launch]
    watches: Mapping[str, Watch] = field(default_factory=dict)


#: Enters a context for half a round: always the same one, or a new one each time.
Contexts = Callable[[], AbstractContextManager[Context[AnyTimer]]]
#: Allocates in a new context and says what runs there.
SetUp = Callable[[TimedBackend, DeviceTimer], Mapping[str, Launch]]


def staying(context: Context[AnyTimer]) -> Contexts[AnyTimer]:
    """One context for all rounds."""
    return lambda: nullcontext(context)


@contextmanager
def new_context(
    home: TimedBackend,
    monitor: Monitor,
    set_up: SetUp,
    watched: Callable[[], Mapping[str, Watch]] = dict,
) -> Iterator[Context[DeviceTimer]]:
    """A context of its own, its buffers at other addresses than those of the one before.

    Whatever `set_up` allocates goes with the context; `watched` is asked behind it. Raises
    OutOfMemory and EnvironmentProblem.
    """
    with home.another() as backend:
        backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        timer = DeviceTimer(backend, monitor)
        try:
            entrants = set_up(backend, timer)
            yield Context(timer, entrants, watched())
        finally:
            timer.release()
