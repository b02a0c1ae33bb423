"""A series of runs as a chart in plain characters, which can be piped and pasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import median

from cudareduce.history.series import Series
from cudareduce.report.numbers import plain_text

#: The plot area in characters and lines.
_WIDTH, _HEIGHT = 68, 10
#: The smallest range of the y axis as a share of its top, so that noise does not fill the chart.
_MIN_RANGE = 0.02
_POINT, _LEVEL, _CHANGE = "o", "-", "^"


def curve(series: Series, width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """Times from left to right as points, levels between change points as lines, and the change
    points below the axis. A column shows the median of its runs if there are more runs than
    columns."""
    us = [point.us for point in series.points]
    columns = min(width, len(us))
    column_of = [k * columns // len(us) for k in range(len(us))]
    medians = [median(us[k] for k, at in enumerate(column_of) if at == c) for c in range(columns)]
    low, high = _y_range(medians + [level.us for level in series.levels])

    def row(value: float) -> int:
        return min(height - 1, int((high - value) / (high - low) * height))

    cells = [[" "] * columns for _ in range(height)]
    marks = [" "] * columns
    for level in series.levels:
        for column in range(column_of[level.first], column_of[level.end - 1] + 1):
            cells[row(level.us)][column] = _LEVEL
        marks[column_of[level.first]] = _CHANGE if level.first else " "
    for column, value in enumerate(medians):
        cells[row(value)][column] = _POINT
    digits = 4 if high < 10 * low else 3
    labels = {0: plain_text(high, digits), height - 1: plain_text(low, digits)}
    left = max(map(len, labels.values()))
    lines = [f" {labels.get(k, ''):>{left}} |{''.join(cells[k])}".rstrip() for k in range(height)]
    axis = f" {'':>{left}} +{'-' * columns}"
    below = f" {'':>{left}}  {''.join(marks)}".rstrip()
    return [*lines, axis, *([below] if below else []), _dates(series, left, columns)]


def _y_range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = max(0.0, _MIN_RANGE * high - (high - low)) / 2
    return low - margin, high + margin


def _dates(series: Series, left: int, columns: int) -> str:
    """The dates of the first and the last run below the ends of the axis."""
    first, last = (day(series.points[k].entry.created) for k in (0, -1))
    gap = max(1, columns - len(first) - len(last))
    return f" {'':>{left}}  {first}" + (f"{'':>{gap}}{last}" if last != first else "")


def day(when: datetime) -> str:
    """A date: 2026-11-20."""
    return f"{when:%Y-%m-%d}"


def changes(series: Series) -> Iterator[tuple[str, ...]]:
    """A table row for each change point: date, revision, times before and after, change, and
    whether the machine code changed."""
    for before, after in zip(series.levels, series.levels[1:], strict=False):
        now = series.points[after.first]
        change = f"{100 * (after.us / before.us - 1):+.1f}%"
        cubins = {point.record.cubin_sha for point in series.points[before.first : after.end]}
        code = "unknown" if None in cubins else "same" if len(cubins) == 1 else "other"
        yield (
            day(now.entry.created), now.entry.revision, plain_text(before.us, 4),
            plain_text(after.us, 4), change, code,
        )  # fmt: skip
