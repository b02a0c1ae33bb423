"""Figures as text for a terminal: curves by plotext, bars and grids in characters."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import cycle
from math import log2, log10
from string import ascii_lowercase
from textwrap import fill
from typing import Any

from cudareduce.errors import EnvironmentProblem
from cudareduce.report.numbers import short_size
from cudareduce.report.plot.figure import Axis, Bar, Bars, Figure, Grid, Lines, shorten, spread
from cudareduce.text import shown

#: Lines of a chart of curves, and the narrowest chart that is readable.
HEIGHT, MIN_WIDTH = 20, 60
#: Characters of a grid column if names are too long to fit side by side.
_COLUMN = 14
#: The bars of a first, second, ... group, which differ without colour.
_FILLS = "█▒▓░"
#: Terminal colours (of 256) close to the palette of files, readable on dark and light.
_COLOURS, _QUIET = (32, 166, 36, 175, 172, 74, 97, 245), 245


def is_plotext_missing() -> bool:
    """True if curves cannot be drawn."""
    return find_spec("plotext") is None


def text_chart(figure: Figure, width: int, *, colour: bool, height: int = HEIGHT) -> str:
    """The figure as lines of at most `width` characters. Raises EnvironmentProblem for curves
    without plotext."""
    body: Iterator[str]
    if isinstance(figure, Lines):
        body = _lines(figure, width, height, colour=colour)
    elif isinstance(figure, Bars):
        body = _bars(figure, width)
    else:
        body = _grid(figure, width)
    notes = (fill(shown(note), width, subsequent_indent="  ") for note in figure.notes)
    return "\n".join([fill(shown(figure.title), width), *body, *notes, ""])


def _bars(figure: Bars, width: int) -> Iterator[str]:
    """A row for each bar: its name, the bar, and its value."""
    groups = figure.groups
    fills = {group: _FILLS[k % len(_FILLS)] for k, group in enumerate(groups)}
    if len(groups) > 1:
        yield " " + "   ".join(f"{fills[group]} {shown(group)}" for group in groups)
    names = min(width // 3, max(len(shown(name)) for name in figure.names))
    labels = max(len(bar.label) for bar in figure.bars)
    room = max(10, width - names - labels - 4)
    high = max([*(bar.value for bar in figure.bars), *(r.value for r in figure.references)]) or 1.0
    marks = {round(room * r.value / high): r.label for r in figure.references if r.value < high}
    name_above = ""
    for bar in figure.bars:
        name = "" if bar.name == name_above else shorten(shown(bar.name), names)
        name_above = bar.name
        if figure.is_change:
            drawn = _interval(bar, room, figure.range[1])
        else:
            full = round(room * bar.value / high)
            rest = "".join("│" if k in marks else " " for k in range(full, room))
            drawn = fills[bar.group] * full + rest
        yield f" {name:<{names}} {drawn} {shown(bar.label)}".rstrip()
    legend = [f"│: {label}" for label in marks.values()]
    legend += [f"full width: {r.label}" for r in figure.references if r.value == high]
    mark = "o and ─: {} and its 95 % interval" if figure.is_change else "bars: {}"
    yield "; ".join([mark.format(figure.axis.title), *legend])


def _interval(bar: Bar, room: int, most: float) -> str:
    """A point and its interval around a line at 0."""
    half = (room - 1) // 2
    cells = [" "] * (2 * half + 1)

    def column(value: float) -> int:
        return half + round(half * value / most)

    if bar.low is not None and bar.high is not None:
        for k in range(column(bar.low), column(bar.high) + 1):
            cells[k] = "─"
    cells[half] = "│" if cells[half] == " " else "┼"
    cells[column(bar.value)] = "o"
    return "".join(cells).ljust(room)


def _grid(figure: Grid, width: int) -> Iterator[str]:
    """The names as a table, split into several below each other if it is too wide."""
    names = max(map(len, figure.rows))
    cells = {(cell.row, cell.column): cell for cell in figure.cells}
    room = width - names - 2
    column = max(len(shown(cell.name)) for cell in figure.cells) + 2
    if (column + 1) * len(figure.columns) > room:
        column = min(column, _COLUMN)
    abreast = max(1, room // (column + 1))
    yield f" {'':<{names}} {figure.x_title}"
    for start in range(0, len(figure.columns), abreast):
        columns = figure.columns[start : start + abreast]
        yield f" {'':<{names}} {' '.join(f'{name:<{column}}' for name in columns)}".rstrip()
        for row in figure.rows:
            row_cells = [cells.get((row, name)) for name in columns]
            words = (
                shorten(shown(cell.name), column - 2) + " ~" * bool(cell.ties) if cell else ""
                for cell in row_cells
            )
            yield f" {row:<{names}} {' '.join(f'{word:<{column}}' for word in words)}".rstrip()


def _lines(figure: Lines, width: int, height: int, *, colour: bool) -> Iterator[str]:
    """The highlighted curves in braille dots, with a letter for each, so that they differ without
    colour."""
    if is_plotext_missing():
        raise EnvironmentProblem(
            "charts in a terminal need plotext: pip install 'cudareduce[plot]'"
        )
    import plotext

    panel = plotext.figure
    panel.clear()
    panel.theme("colorless")
    panel.plot_size(width, height)
    left, right = (_position(figure.x, x) for x in figure.x_range)
    bottom, top = (_position(figure.y, y) for y in figure.y_range)
    names = min(width // 3, max(len(shown(series.name)) for series in figure.highlighted))
    edge = left + (right - left) / max(0.3, 1 - (names + 5) / (width - 10))
    panel.ruler("x").lim(left, edge)
    panel.ruler("y").lim(bottom, top)
    characters = round((width - 10) * (right - left) / (edge - left))
    _draw_limits(panel, figure, (left, right), (bottom, top), characters)
    _draw_series(panel, figure, right + (edge - right) * 0.06, width // 3,
                 (bottom, top), (top - bottom) / (height - 5))  # fmt: skip
    _draw_ticks(panel, figure, bottom, top)
    drawn = str(panel.build())
    yield f" {figure.y.title}"
    plain = drawn if colour else plotext.uncolorize(drawn)
    yield from (line.rstrip() for line in plain.rstrip("\n").split("\n"))
    yield f"{figure.x.title:^{width}}".rstrip()


def _position(axis: Axis, value: float) -> float:
    return {"log2": log2, "log10": log10}.get(axis.scale, float)(value)


def _draw_limits(
    panel: Any, figure: Lines, across: tuple[float, float], up: tuple[float, float], characters: int
) -> None:
    """Reference lines with their labels; the curves are this many characters wide."""
    import plotext

    quiet = plotext.pixel(foreground=_QUIET)
    for line in figure.references:
        flat = line.axis == "y"
        at = _position(figure.y if flat else figure.x, line.value)
        xs, ys = (across, (at, at)) if flat else ((at, at), up)
        marker = plotext.marker("─" if flat else "│", quiet)
        panel.draw(panel.signal(list(xs), list(ys), marker=marker).lines(True))
        position = (at + (across[1] - across[0]) / 50, up[0])
        if flat:
            position = (_free_stretch(figure, at, across, len(line.label) / characters), at)
        panel.draw(panel.text(*position, plotext.colorize(f"{line.label} ", _QUIET)))


def _free_stretch(figure: Lines, y: float, across: tuple[float, float], share: float) -> float:
    """The left end of the stretch of a horizontal line, as long as this share of the chart, that is
    farthest from all curves."""
    left, right = across
    length = share * (right - left)
    points = [
        (_position(figure.x, p.x), _position(figure.y, p.y))
        for series in figure.highlighted for p in series.points
    ]  # fmt: skip
    slack = (right - left) / 12

    def distance(start: float) -> float:
        near = [abs(at - y) for x, at in points if start - slack <= x <= start + length + slack]
        return min(near, default=0.0)

    starts = [left + k * (right - left - length) / 8 for k in range(9)]
    return max(starts, key=lambda start: (distance(start), -start))


def _draw_series(
    panel: Any, figure: Lines, x: float, length: int, ends: tuple[float, float], gap: float
) -> None:
    """Curves with a letter at each point, and at `x` their letters and names of at most `length`
    characters, at least `gap` apart."""
    import plotext

    heights = [_position(figure.y, series.points[-1].y) for series in figure.highlighted]
    positions = spread(heights, gap, *ends)
    styles = cycle(zip(ascii_lowercase, cycle(_COLOURS), strict=False))
    for series, label_y in zip(figure.highlighted, positions, strict=True):
        is_limit = series.role == "limit"
        letter, colour = ("·", _QUIET) if is_limit else next(styles)
        pixel = plotext.pixel(foreground=colour)
        xs = [_position(figure.x, p.x) for p in series.points]
        ys = [_position(figure.y, p.y) for p in series.points]
        line = plotext.marker("·" if is_limit else "braille", pixel)
        panel.draw(panel.signal(xs, ys, marker=line).lines(True))
        panel.draw(panel.signal(xs, ys, marker=plotext.marker(letter, pixel)))
        name = f"{letter} {shorten(shown(series.name), length)}"
        panel.draw(panel.text(x, label_y, plotext.colorize(name, colour)))


def _draw_ticks(panel: Any, figure: Lines, bottom: float, top: float) -> None:
    """Some of the x values, at least a twelfth of the axis apart, and round y values."""
    xs = sorted({p.x for series in figure.series for p in series.points})
    gap = (_position(figure.x, xs[-1]) - _position(figure.x, xs[0])) / 12
    ticks: dict[float, str] = {}
    for x in xs[:: max(1, (len(xs) + 6) // 7)]:
        at = _position(figure.x, x)
        if not ticks or at - max(ticks) >= gap:
            ticks[at] = short_size(int(x)) if figure.x.scale == "log2" else f"{x:.4g}"
    panel.ruler("x").ticks(list(ticks), list(ticks.values()))
    if figure.y.scale == "linear":
        step = 10.0 ** int(log10(top)) if top >= 1 else 0.1
        step = step / 2 if top / step < 4 else step
        ticks = {k * step: f"{k * step:g}" for k in range(int(top / step) + 1)}
    else:
        every = {k + log10(m): f"{m * 10.0**k:g}" for k in range(-9, 16) for m in (1, 2, 5)}
        ticks = {at: name for at, name in every.items() if bottom <= at <= top}
    panel.ruler("y").ticks(list(ticks), list(ticks.values()))
