"""The energy of a launch: what the whole GPU takes while one launch follows the other.

The driver counts joules and renews its count every 20 to 100 ms, so power is taken from one renewal
to another, over a second, and a launch's share of it from events over the same stretch. It is the
board's power, with what it takes when idle (130 W of 700 on an H200). Nothing displaces the cache
between launches: an input that fits the L2 is read from there.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from cudareduce.backend import Launch
from cudareduce.timing.timer import DeviceTimer

#: Clocks and power settle first; then the counter is watched.
_WARM_US, _STRETCH_US = 0.3e6, 1.2e6
#: GPU time that is enqueued at once, and the launches it is spent on at most: two such are always
#: under way, and the driver's queue holds some 1000 launches.
_CHUNK_US, _MOST_LAUNCHES = 5_000.0, 256

#: Joules since some moment, None where nobody counts them.
Counter = Callable[[], float | None]


def joules(timer: DeviceTimer, run: Launch, cost_us: float, counter: Counter) -> float | None:
    """Joules of one launch that takes about `cost_us`; None where the GPU does not count them, or
    renews its count too seldom."""
    if counter() is None:
        return None
    launches = min(_MOST_LAUNCHES, max(1, ceil(_CHUNK_US / max(cost_us, 1.0))))
    _stretch(timer, run, launches, _WARM_US, counter)
    each_us, watts = _stretch(timer, run, launches, _STRETCH_US, counter)
    timer.synchronize()
    return None if watts is None else watts * each_us / 1e6


def _stretch(
    timer: DeviceTimer, run: Launch, launches: int, for_us: float, counter: Counter
) -> tuple[float, float | None]:
    """Keep the GPU busy so long: microseconds a launch, and the power in watts."""
    renewals: list[tuple[float, float]] = []
    first = before = timer.mark()
    seen, chunks, end_us = counter(), 0, timer.host_us() + for_us
    while timer.host_us() < end_us or not chunks:
        for _ in range(launches):
            run()
        event, chunks = timer.mark(), chunks + 1
        while True:
            count = counter()
            if count is not None and count != seen:
                renewals.append((timer.host_us(), count))
                seen = count
            if timer.reached(before):
                break
        before = event
    while not timer.reached(before):
        pass
    each_us = timer.elapsed_us(first, before) / (chunks * launches)
    if len(renewals) < 2:
        return each_us, None
    (from_us, low), (to_us, high) = renewals[0], renewals[-1]
    return each_us, 1e6 * (high - low) / (to_us - from_us)
