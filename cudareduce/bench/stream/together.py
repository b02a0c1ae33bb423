"""Who streams an array: one process alone, or several, each with a share of it and a GPU."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Protocol

from cudareduce.results.record import Record


class Together(Protocol):
    """What one of them must know of the others."""

    @property
    def ranks(self) -> int | None:
        """How many there are; None of one alone."""

    @property
    def first(self) -> bool:
        """Whether it prints and writes."""

    def share(self, n: int) -> range:
        """Which of `n` elements are its own."""

    def slowest(self, run: Callable[[], float]) -> float:
        """Begin with all others; what the slowest took. Raises what `run` does, and RankLost."""

    def common(self, rows: Set[int]) -> Set[int]:
        """Those that all go on with. Raises RankLost."""

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        """Records with the worst verdicts of all. Raises RankLost."""

    def code(self, own: int) -> int:
        """The exit code that all end with. Raises RankLost."""


class Alone:
    """Nobody else."""

    ranks, first = None, True

    def share(self, n: int) -> range:
        return range(n)

    def slowest(self, run: Callable[[], float]) -> float:
        return run()

    def common(self, rows: Set[int]) -> Set[int]:
        return rows

    def agreed(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        return records

    def code(self, own: int) -> int:
        return own


ALONE = Alone()
