"""Where passes of rounds take place: each in a context of its own, so that no result rests on one.

Where a context and a buffer happen to lie in memory makes short launches faster or slower for as
long as they live. On an H200 contexts differ by 0.2 us a launch (V7 at 2^24 float32, three
launches: 25.6 to 26.1 us in twelve contexts), and one kernel's partials by up to 2 % from address
to address. Measured in a single context, that is a bias of the whole run; spread over rounds it is
noise, which the interval shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from random import Random

from cudareduce.backend import Launch
from cudareduce.gpu.cuda import CudaBackend
from cudareduce.gpu.nvml import Monitor
from cudareduce.timing.sampling import Timer
from cudareduce.timing.timer import CudaTimer

#: Buffers are pushed about by up to so many steps from context to context.
_STEPS, _STEP_BYTES = 2048, 512


@dataclass(frozen=True, slots=True)
class Scene:
    """What a pass needs, ready to run."""

    timer: Timer
    entrants: Mapping[str, Launch]


Scenes = Callable[[], AbstractContextManager[Scene]]
SetUp = Callable[[CudaBackend, CudaTimer], Mapping[str, Launch]]


def staying(scene: Scene) -> Scenes:
    """One scene for all rounds."""
    return lambda: nullcontext(scene)


@contextmanager
def new_scene(home: CudaBackend, monitor: Monitor, set_up: SetUp) -> Iterator[Scene]:
    """A scene in a context of its own, its buffers at other addresses than those of the one before.

    `set_up` allocates there and says what runs; whatever it allocates goes with the scene.
    """
    with home.another() as backend:
        backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        timer = CudaTimer(backend, monitor)
        try:
            yield Scene(timer, set_up(backend, timer))
        finally:
            timer.release()
