"""The deadline of a run, and deadlines for its parts."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic


class Deadline:
    """A deadline on the monotonic clock, `seconds` from now; None means no deadline."""

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = monotonic):
        self.seconds, self._clock = seconds, clock
        self._end = inf if seconds is None else clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self._end - self._clock())

    @property
    def passed(self) -> bool:
        """True once the deadline has passed."""
        return self.left_s == 0

    def share(self, parts: float) -> Deadline:
        """A deadline for the next of `parts` equal parts of the remaining time."""
        if self.seconds is None:
            return self
        return Deadline(self.left_s / max(parts, 1), self._clock)
