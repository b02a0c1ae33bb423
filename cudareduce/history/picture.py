"""A series as a curve of characters: no colour and no cursor, so it can be piped and pasted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import median

from cudareduce.history.series import Series
from cudareduce.report.numbers import plain_text

#: Characters beside the axis, and lines.
_WIDTH, _HEIGHT = 68, 10
#: The least that a picture's height stands for, as a share: else noise would fill it.
_LEAST_RANGE = 0.02
_POINT, _LEVEL, _STEP = "o", "-", "^"


def curve(series: Series, width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """Runs from left to right as points, the levels they lie on as lines, and below the axis where
    a level begins; several runs share a column where there are more of them than columns."""
    us = [point.us for point in series.points]
    columns = min(width, len(us))
    place = [k * columns // len(us) for k in range(len(us))]
    seen = [median(us[k] for k, at in enumerate(place) if at == c) for c in range(columns)]
    low, high = _range(seen + [level.us for level in series.levels])

    def row(value: float) -> int:
        return min(height - 1, int((high - value) / (high - low) * height))

    cells = [[" "] * columns for _ in range(height)]
    marks = [" "] * columns
    for level in series.levels:
        for column in range(place[level.first], place[level.end - 1] + 1):
            cells[row(level.us)][column] = _LEVEL
        marks[place[level.first]] = _STEP if level.first else " "
    for column, value in enumerate(seen):
        cells[row(value)][column] = _POINT
    digits = 4 if high < 10 * low else 3
    labels = {0: plain_text(high, digits), height - 1: plain_text(low, digits)}
    left = max(map(len, labels.values()))
    lines = [f" {labels.get(k, ''):>{left}} |{''.join(cells[k])}".rstrip() for k in range(height)]
    axis = f" {'':>{left}} +{'-' * columns}"
    below = f" {'':>{left}}  {''.join(marks)}".rstrip()
    return [*lines, axis, *([below] if below else []), _dates(series, left, columns)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """What the picture's edges stand for."""
    low, high = min(values), max(values)
    missing = max(0.0, _LEAST_RANGE * high - (high - low)) / 2
    return low - missing, high + missing


def _dates(series: Series, left: int, columns: int) -> str:
    first, last = (day(series.points[k].entry.created) for k in (0, -1))
    room = max(1, columns - len(first) - len(last))
    return f" {'':>{left}}  {first}" + (f"{'':>{room}}{last}" if last != first else "")


def day(when: datetime) -> str:
    """A day, as tables show it."""
    return f"{when:%Y-%m-%d}"


def changes(series: Series) -> Iterator[tuple[str, ...]]:
    """A row for each step: when, at which revision, from, to, by how much, and whether it was
    another code that ran."""
    for before, after in zip(series.levels, series.levels[1:], strict=False):
        now = series.points[after.first]
        by = f"{100 * (after.us / before.us - 1):+.1f}%"
        ran = {point.record.cubin_sha for point in series.points[before.first : after.end]}
        code = "unknown" if None in ran else "same" if len(ran) == 1 else "other"
        yield (
            day(now.entry.created), now.entry.revision, plain_text(before.us, 4),
            plain_text(after.us, 4), by, code,
        )  # fmt: skip
