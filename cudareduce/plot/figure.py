"""What a picture shows, before anything is drawn: curves, bars or a map, with their words.

Whatever draws, a file, a terminal or a page, draws these, so they cannot tell different stories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: A kernel of ours or a user's, and a library's.
Who = Literal["kernel", "library"]


@dataclass(frozen=True, slots=True)
class Axis:
    """A title with its unit, and how values lie on it; `log2` has ticks at powers of two, `change`
    is per cent around 0."""

    title: str
    scale: Literal["linear", "log2", "log10", "change"] = "linear"


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a place, the ends of its interval, and the words for it."""

    x: float
    y: float
    low: float | None
    high: float | None
    told: str


@dataclass(frozen=True, slots=True)
class Curve:
    """What one name does along an axis; one that is not `strong` is context, drawn faintly."""

    name: str
    who: Who
    points: tuple[Point, ...]
    strong: bool = True


@dataclass(frozen=True, slots=True)
class Mark:
    """A line across the picture at a value of one axis, with its words."""

    axis: Literal["x", "y"]
    at: float
    told: str


@dataclass(frozen=True, slots=True)
class Limit:
    """A curve that nothing can be above, with its words."""

    told: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over a common axis."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...] = ()
    limit: Limit | None = None
    notes: tuple[str, ...] = ()

    @property
    def lower_mark(self) -> Mark | None:
        """Of two lines across the one whose words have their place below it, not between them."""
        across = [mark for mark in self.marks if mark.axis == "y"]
        return min(across, key=lambda mark: mark.at) if len(across) > 1 else None


@dataclass(frozen=True, slots=True)
class Bar:
    """A value under a name, the ends of its interval, the few words at its end, and all that is to
    be told of it. Bars of several groups stand beside each other under one name."""

    name: str
    who: Who
    value: float
    low: float | None
    high: float | None
    brief: str
    told: str
    group: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Values from 0 on, a name a row, from top to bottom."""

    title: str
    axis: Axis
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """Who is first at a row and a column; `close` are those whose lead is not beyond doubt."""

    row: str
    column: str
    name: str
    who: Who
    close: tuple[str, ...]
    told: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A map: rows and columns in their order, and what is in each place that has something."""

    title: str
    across: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


Figure = Lines | Bars | Grid
