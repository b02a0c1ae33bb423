"""Whether launches leave work behind their end event: then their time does not stand."""

from __future__ import annotations

from cudareduce.backend import Launch
from cudareduce.timing.sampling import Timer

#: A wait for the whole context right behind the last event takes the host 1 us longer than behind
#: an empty launch when nothing is left, and 30 us behind a launch of several milliseconds (H200).
#: What takes this much longer every time is work; a hundredth more of long ones, up to the most.
_LATE_US, _LATE_SHARE, _MOST_LATE_US, _TRIES = 20.0, 0.01, 100.0, 10


def late_work(timer: Timer, run: Launch, cost_us: float) -> str | None:
    """What is wrong if the device still works when the end event has fired; None if it does not.
    One run takes about `cost_us`."""
    limit = min(_LATE_US + _LATE_SHARE * cost_us, _MOST_LATE_US)
    late = []
    for _ in range(_TRIES):
        late.append(_wait_behind(timer, run) - _wait_behind(timer, lambda: None))
        if late[-1] < limit:
            return None
    return (
        f"the device worked for {min(late):.0f} us after its end event: part of the work runs "
        "outside the stream that is timed"
    )


def _wait_behind(timer: Timer, run: Launch) -> float:
    run()
    end = timer.mark()
    while not timer.reached(end):
        pass
    began = timer.host_us()
    timer.finish()
    return timer.host_us() - began
