"""Whether the call of a library can be captured in a CUDA graph: that is tried, not looked up."""

from __future__ import annotations

from collections.abc import Callable

from cudareduce.backend import TimedBackend
from cudareduce.peers.faults import line
from cudareduce.peers.scene import Bound, verdict_on
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.verdict import Verdict


def uncaptured(
    timer: DeviceTimer, backend: TimedBackend, one: Bound,
    judged: Callable[[], Verdict | None],
) -> str | None:  # fmt: skip
    """Why a call has no graph, or None if the replay of one gives its answer. Raises BrokenError
    where the device is of no more use after it."""
    try:
        replay = timer.captured(one.run, 1)
        one.poison()
        replay()
        verdict = judged()
    except Exception as error:
        verdict_on(one.peer, error, backend)  # raises if nothing goes on
        inner = error.__context__  # what the call said, before the driver said that nothing came
        why = inner if isinstance(inner, Exception) else error
        return f"is not captured in a graph ({line(why)})"
    if verdict is not None and verdict.outcome == "fail":
        return "does its work elsewhere than in the graph that is captured of it"
    return None
