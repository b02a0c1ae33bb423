"""What a selftest times: reductions of one input, launches that only read, places in the ring."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from cudareduce.backend import Launch, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import make
from cudareduce.timing.contexts import Context, SetUp
from cudareduce.timing.sampling import COLD, Sampler
from cudareduce.timing.timer import PLACES, DeviceTimer

#: Samples at each place among launches.
_PLACE_SAMPLES = 40


def reductions(n: int, named: Mapping[str, Case]) -> SetUp:
    """Reductions of one random input of `n` elements, each with buffers of its own."""
    data = make("random", next(iter(named.values())).reduction, n, 1, 1)

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        given = backend.upload(data)
        plans = {case: case.plan(n, 1, backend.limits()) for case in named.values()}
        programs = programs_of(backend, plans)
        return {
            name: Bound(backend, plans[case], programs[case], given).run
            for name, case in named.items()
        }

    return set_up


def reads(lengths: Mapping[str, int]) -> SetUp:
    """Launches that only read, by name, each so many bytes of one buffer."""

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        buffer = backend.allocate(max(lengths.values()))
        return {name: timer.reader(buffer, size) for name, size in lengths.items()}

    return set_up


def by_place(context: Context[DeviceTimer], launches: int, deadline: Deadline) -> tuple[float, ...]:
    """The median of the first entrant in us at each of the places that its first launch can take;
    nothing if the deadline left a place without a sample. `launches` is how many one run makes."""
    run = next(iter(context.entrants.values()))
    sampler = Sampler(context.timer.in_step(launches), COLD, run, batch=1)
    times: list[list[float]] = [[] for _ in range(PLACES)]
    for k in range(_PLACE_SAMPLES * PLACES):
        taken = None if deadline.passed else sampler.timed()
        if taken:
            times[k % PLACES].append(taken.us)
    return tuple(median(us) for us in times) if all(times) else ()
