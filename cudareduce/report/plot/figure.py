"""The figure model: what a chart shows, independent of how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

#: The kinds of charts, with what each one shows.
KINDS = {
    "sizes": "bandwidth and time over n, of at least 3 sizes",
    "ladder": "a bar for each kernel at one size",
    "speedup": "kernels against the fastest library over n, of a run with --peers",
    "winners": "the fastest of several types or sizes",
    "sms": "bandwidth over the number of active SMs, of a run with --sms",
    "busbw": "bus bandwidth over array bytes, of collectives",
    "change": "the times of two runs, before and after",
    "gpus": "results of several GPUs, as shares of their ceilings",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis title with its unit, and the axis scale. A `log2` axis has ticks at powers of two."""

    title: str
    scale: Literal["linear", "log2", "log10"] = "linear"


@dataclass(frozen=True, slots=True)
class Point:
    """A value, its 95 % interval, and the text of its tooltip."""

    x: float
    y: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """A named curve. One that is not highlighted is drawn in grey and has no label; a `limit` is
    what no kernel can exceed."""

    name: str
    points: tuple[Point, ...]
    role: Literal["kernel", "library", "limit"] = "kernel"
    highlighted: bool = True


@dataclass(frozen=True, slots=True)
class Reference:
    """A labelled line across the chart at a value of one axis."""

    axis: Literal["x", "y"]
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over a common x axis."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def highlighted(self) -> list[Series]:
        """The series that have a colour and a label."""
        return [series for series in self.series if series.highlighted]

    @property
    def x_range(self) -> tuple[float, float]:
        """The smallest and the largest x; never equal."""
        xs = [p.x for series in self.series for p in series.points]
        return min(xs), max(xs) if max(xs) > min(xs) else 2 * min(xs)

    @property
    def y_range(self) -> tuple[float, float]:
        """The ends of the y axis: 0 for a linear one, with a margin above the largest value."""
        ys = [p.y for series in self.series for p in series.points]
        ys += [line.value for line in self.references if line.axis == "y"]
        if self.y.scale == "linear":
            return 0.0, max(ys) * 1.08
        return min(ys) / 1.25, max(ys) * 1.25


@dataclass(frozen=True, slots=True)
class Bar:
    """A named value, its 95 % interval, the label at the end of its row, and its tooltip. Bars of
    several groups share the row of their name."""

    name: str
    value: float
    low: float | None
    high: float | None
    label: str
    text: str
    is_library: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars from 0, one row for each name; or, if `is_change`, signed changes."""

    title: str
    axis: Axis
    bars: tuple[Bar, ...]
    references: tuple[Reference, ...] = ()
    notes: tuple[str, ...] = ()
    is_change: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the rows, from top to bottom."""
        return list(dict.fromkeys(bar.name for bar in self.bars))

    @property
    def groups(self) -> list[str]:
        """The groups in their order; one without a name if bars are not grouped."""
        return list(dict.fromkeys(bar.group for bar in self.bars))

    @property
    def range(self) -> tuple[float, float]:
        """The ends of the axis: from 0, or symmetric around 0 for changes."""
        ends = [e for bar in self.bars for e in (bar.value, bar.low, bar.high) if e is not None]
        most = max([*map(abs, ends), *(line.value for line in self.references)]) * 1.02 or 1.0
        return (-most if self.is_change else 0.0), most


@dataclass(frozen=True, slots=True)
class Cell:
    """The fastest at a row and a column; `ties` are those whose intervals reach into its own."""

    row: str
    column: str
    name: str
    ties: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of names, coloured by name."""

    title: str
    x_title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()


Figure = Lines | Bars | Grid


def shorten(name: str, length: int) -> str:
    """The name with an ellipsis in its middle if it is longer than `length` characters."""
    if len(name) <= length:
        return name
    end = (length - 1) // 2
    return f"{name[: length - 1 - end]}…{name[len(name) - end :]}"


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Label positions at least `gap` apart, in the same order and close to the given ones; between
    `low` and `high` if all of them fit."""
    order = sorted(range(len(positions)), key=lambda k: positions[k])
    moved = list(positions)
    for previous, k in pairwise(order):
        moved[k] = max(moved[k], moved[previous] + gap)
    limit = high
    for k in reversed(order):
        moved[k] = min(moved[k], limit)
        limit = moved[k] - gap
    limit = low
    for k in order:
        moved[k] = max(moved[k], limit)
        limit = moved[k] + gap
    return moved
