"""Curves as text, by plotext: names beside their ends, in their curves' colours."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from math import log2, log10
from typing import Any

from cudareduce.errors import EnvironmentProblem
from cudareduce.escapes import shown
from cudareduce.plot.cut import cut
from cudareduce.plot.figure import Axis, Lines
from cudareduce.plot.over_sizes import size_name
from cudareduce.plot.spread import spread

#: Of the 256 colours of terminals those near the palette of files, readable on dark and light.
_COLOURS = (32, 166, 36, 175, 172, 74, 97, 245)
_MARK = 245


def missing() -> bool:
    """Whether there is nothing to draw curves with."""
    return find_spec("plotext") is None


def lines_text(figure: Lines, width: int, height: int, *, colour: bool) -> Iterator[str]:
    """The curves that count, in so many columns and lines. Without plotext an
    EnvironmentProblem."""
    if missing():
        raise EnvironmentProblem(
            "pictures in a terminal need plotext: pip install 'cudareduce[plot]'"
        )
    import plotext

    panel = plotext.figure  # its only one
    panel.clear()
    panel.theme("colorless")
    panel.plot_size(width, height)
    left, right, room = _across(figure, width)
    bottom, top = _up(figure)
    panel.ruler("x").lim(left, room)
    _draw_limits(panel, figure, (left, right), _up(figure))
    panel.ruler("y").lim(bottom, top)
    _draw(panel, figure, width // 3, right + (room - right) * 0.06, (top - bottom) / (height - 5))
    _ticks(panel, figure, bottom, top)
    drawn = str(panel.build())
    yield f" {figure.y.title}"
    plain = drawn if colour else plotext.uncolorize(drawn)
    yield from (line.rstrip() for line in plain.rstrip("\n").split("\n"))
    yield f"{figure.x.title:^{width}}".rstrip()


def _draw_limits(
    panel: Any, figure: Lines, across: tuple[float, float], up: tuple[float, float]
) -> None:
    """What lies across with its words, and in dots what no curve can be above."""
    import plotext

    grey = plotext.pixel(foreground=_MARK)
    for mark in figure.marks:
        flat = mark.axis == "y"
        at = _place(figure.y if flat else figure.x, mark.at)
        ends = (across, (at, at)) if flat else ((at, at), up)
        line = plotext.marker("─" if flat else "│", grey)
        panel.draw(panel.signal(*map(list, ends), marker=line).lines(True))
        place = (across[0], at) if flat else (at + (across[1] - across[0]) / 50, up[0])
        panel.draw(panel.text(*place, plotext.colorize(f"{mark.told} ", _MARK)))
    if figure.limit:
        xs = [_place(figure.x, x) for x, _ in figure.limit.points]
        ys = [_place(figure.y, y) for _, y in figure.limit.points]
        panel.draw(panel.signal(xs, ys, marker=plotext.marker("·", grey)).lines(True))


def _draw(panel: Any, figure: Lines, most: int, beside: float, gap: float) -> None:
    """Curves, and their names of at most so many characters at a place beside them, at least `gap`
    above each other."""
    import plotext

    strong = [curve for curve in figure.curves if curve.strong]
    bottom, top = _up(figure)
    ends = [_place(figure.y, curve.points[-1].y) for curve in strong]
    for k, (curve, end) in enumerate(zip(strong, spread(ends, gap, bottom, top), strict=True)):
        colour = _COLOURS[k % len(_COLOURS)]
        xs = [_place(figure.x, p.x) for p in curve.points]
        ys = [_place(figure.y, p.y) for p in curve.points]
        dots = plotext.marker("braille", plotext.pixel(foreground=colour))
        panel.draw(panel.signal(xs, ys, marker=dots).lines(True))
        panel.draw(panel.text(beside, end, plotext.colorize(cut(shown(curve.name), most), colour)))


def _place(axis: Axis, value: float) -> float:
    return {"log2": log2, "log10": log10}.get(axis.scale, float)(value)


def _across(figure: Lines, width: int) -> tuple[float, float, float]:
    """The first and the last place, and where the panel ends, so that names stand in it."""
    places = [_place(figure.x, p.x) for curve in figure.curves for p in curve.points]
    names = max(len(shown(curve.name)) for curve in figure.curves if curve.strong)
    names = min(names, width // 3)
    left, right = min(places), max(places)
    share = max(0.3, 1 - (names + 3) / (width - 10))
    return left, right, left + (right - left or 1.0) / share


def _up(figure: Lines) -> tuple[float, float]:
    """Where the panel begins and ends: at 0, or a little below the least where logarithms are
    drawn, and a little above the most."""
    values = [_place(figure.y, p.y) for c in figure.curves if c.strong for p in c.points]
    top = max([*values, *(_place(figure.y, m.at) for m in figure.marks if m.axis == "y")])
    bottom = min(values) if figure.y.scale == "log10" else 0.0
    above = 0.04 * (top - bottom or 1.0)
    return bottom - above * (figure.y.scale == "log10"), top + above


def _apart(places: list[float], axis: Axis) -> list[float]:
    """Without those that would stand on the one before, as a size and one element more do."""
    least = (_place(axis, places[-1]) - _place(axis, places[0])) / 12
    kept: list[float] = []
    for x in places:
        if not kept or _place(axis, x) - _place(axis, kept[-1]) >= least:
            kept.append(x)
    return kept


def _ticks(panel: Any, figure: Lines, bottom: float, top: float) -> None:
    """Some of the sizes along, some round values up."""
    places = sorted({p.x for curve in figure.curves for p in curve.points})
    some = _apart(places[:: max(1, (len(places) + 6) // 7)], figure.x)
    names = [size_name(x) if figure.x.scale == "log2" else f"{x:g}" for x in some]
    panel.ruler("x").ticks([_place(figure.x, x) for x in some], names)
    if figure.y.scale == "log10":
        rounds = {k + log10(m): f"{m * 10.0**k:g}" for k in range(-9, 16) for m in (1, 2, 5)}
        kept = {at: name for at, name in rounds.items() if bottom <= at <= top}
    else:
        step = 10.0 ** int(log10(top)) if top >= 1 else 0.1
        step = step / 2 if top / step < 4 else step
        kept = {k * step: f"{k * step:g}" for k in range(int(top / step) + 1)}
    panel.ruler("y").ticks(list(kept), list(kept.values()))
