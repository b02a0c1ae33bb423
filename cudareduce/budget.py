"""The time a run may take: one deadline for all of it, and fair shares for its parts."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic


class Deadline:
    """A moment on the host's clock; without seconds it never comes."""

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = monotonic):
        self.seconds, self._clock = seconds, clock
        self._end = inf if seconds is None else clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self._end - self._clock())

    @property
    def passed(self) -> bool:
        """True once there is nothing left."""
        return self.left_s == 0

    def share(self, parts: float) -> Deadline:
        """A deadline for the next one of `parts` parts of what is left."""
        if self.seconds is None:
            return self
        return Deadline(self.left_s / max(parts, 1), self._clock)
