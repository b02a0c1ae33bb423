"""When a process counts as hanging: by the seconds of a processor that it has had, not by those of
the clock, which on a busy machine pass without it."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic

#: Of a process that has had less than this share of a processor, over so many seconds at least, it
#: is not the load that keeps it.
_IDLE, _IDLE_S = 0.01, 10.0
#: Seconds after which one that still has some of its limit left is looked at again, at least.
_LOOK_S = 1.0


class Watchdog:
    """Watches one process from now on: `limit_s` seconds of a processor, or with `wall` of the
    clock. `ends` is when to ask whether it is overdue."""

    def __init__(self, pid: int, limit_s: float, *, wall: bool) -> None:
        self._pid, self._limit_s, self._wall = pid, limit_s, wall
        self._start_s = self._before_s = processor_s(pid) or 0.0
        self._looked = monotonic()
        self.ends = self._looked + limit_s

    def overdue(self) -> bool:
        """Whether its time is up; if not, `ends` is later than before."""
        now, spent_s = monotonic(), processor_s(self._pid)
        if now < self.ends:
            return False
        if self._wall or spent_s is None:
            return True
        left_s = self._limit_s - (spent_s - self._start_s)
        passed_s, self.ends = now - self._looked, now + max(left_s, _LOOK_S)
        if passed_s < _IDLE_S:
            return left_s <= 0
        idle = spent_s - self._before_s < _IDLE * passed_s
        self._before_s, self._looked = spent_s, now
        return left_s <= 0 or idle


def processor_s(pid: int) -> float | None:
    """Seconds that all threads of a process have had of all processors; None where the system does
    not say (proc(5), fields 14 and 15 of stat)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
