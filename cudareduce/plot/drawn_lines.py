"""Curves by Matplotlib: labels beside their ends, libraries dashed, the others behind in grey."""

from __future__ import annotations

from math import log2, log10
from typing import TYPE_CHECKING

from cudareduce.plot.colours import FAINT, LIMIT, coloured
from cudareduce.plot.cut import cut
from cudareduce.plot.figure import Curve, Limit, Lines, Mark
from cudareduce.plot.over_sizes import size_name
from cudareduce.plot.spread import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The least distance of two labels, as a share of the height.
_GAP = 0.045
_MARKERS = "osD^vPX*"
#: Characters of a name.
_NAME = 32


def draw_lines(figure: Lines, axes: Axes) -> None:
    """Curves, what they cannot be above, and what lies across."""
    colours = coloured(curve.name for curve in figure.curves if curve.strong)
    markers = dict(zip(colours, _MARKERS * len(colours), strict=False))
    for curve in figure.curves:
        _draw_curve(curve, axes, colours.get(curve.name, FAINT), markers.get(curve.name, ""))
    _scale(figure, axes)
    if figure.limit:
        _draw_limit(figure.limit, axes)
    for mark in figure.marks:
        _draw_mark(mark, axes, below=mark is figure.lower_mark)
    _labels(figure, axes, colours)


def _draw_limit(limit: Limit, axes: Axes) -> None:
    """Dotted, its words to the left of where it is half as high as it gets."""
    xs, ys = zip(*limit.points, strict=True)
    axes.plot(xs, ys, color=LIMIT, lw=1.4, ls=(0, (1, 1.5)), zorder=1)
    k = next(k for k, y in enumerate(ys) if y >= max(ys) / 2)
    axes.annotate(limit.told, (xs[k], ys[k]), color="#555555", fontsize=8.5, ha="right",
                  xytext=(-6, 0), textcoords="offset points")  # fmt: skip


def _draw_mark(mark: Mark, axes: Axes, *, below: bool) -> None:
    """Words at the left end of a line across, above it or below, or at the foot of one upward."""
    if mark.axis == "y":
        axes.axhline(mark.at, color=LIMIT, lw=1, zorder=1)
        where, transform = (0.005, mark.at), axes.get_yaxis_transform()
        off, side = ((0, -3), "top") if below else ((0, 3), "bottom")
    else:
        axes.axvline(mark.at, color=LIMIT, lw=1, zorder=1)
        where, transform = (mark.at, 0.02), axes.get_xaxis_transform()
        off, side = (4, 0), "bottom"
    axes.annotate(mark.told, where, xycoords=transform, va=side, color="#555555", fontsize=8.5,
                  xytext=off, textcoords="offset points")  # fmt: skip


def _draw_curve(curve: Curve, axes: Axes, colour: str, marker: str) -> None:
    xs, ys = [p.x for p in curve.points], [p.y for p in curve.points]
    style = "--" if curve.who == "library" else "-"
    axes.plot(xs, ys, style, color=colour, marker=marker, ms=4, lw=1.8 if curve.strong else 0.8,
              zorder=3 if curve.strong else 2)  # fmt: skip
    sure = [p for p in curve.points if p.low is not None and p.high is not None]
    if curve.strong and sure:
        axes.fill_between([p.x for p in sure], [p.low or 0.0 for p in sure],
                          [p.high or 0.0 for p in sure], color=colour, alpha=0.2, lw=0)  # fmt: skip


def _scale(figure: Lines, axes: Axes) -> None:
    """Ticks at powers of two; bandwidth from 0 on, and room for labels above and beside."""
    from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter

    places = sorted({p.x for curve in figure.curves for p in curve.points})
    if figure.x.scale == "log2":
        axes.set_xscale("log", base=2)
        first, last = round(log2(places[0])), round(log2(places[-1]))
        step = max(1, (last - first + 9) // 10)
        ticks = [float(2**k) for k in range(first, last + 1, step)]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.set_xticklabels([size_name(tick) for tick in ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif figure.x.scale == "log10":
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    if figure.y.scale == "log10":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        tops = [p.y for curve in figure.curves for p in curve.points]
        tops += [mark.at for mark in figure.marks if mark.axis == "y"]
        tops += [y for _, y in figure.limit.points] if figure.limit else []
        axes.set_ylim(0, max(tops) * 1.08)
    axes.grid(axis="y", color="#E6E6E6", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(figure.x.title)
    axes.set_ylabel(figure.y.title)


def _labels(figure: Lines, axes: Axes, colours: dict[str, str]) -> None:
    """Names at the right, on the height of their curves' ends as far as there is room."""
    strong = [curve for curve in figure.curves if curve.strong]
    ends = [_height(axes, curve.points[-1].y) for curve in strong]
    for curve, end, place in zip(strong, ends, spread(ends, _GAP, 0.0, 1.0), strict=True):
        axes.annotate(
            cut(curve.name, _NAME), (curve.points[-1].x, end), xycoords=("data", "axes fraction"),
            xytext=(1.025, place), textcoords="axes fraction", va="center", fontsize=9,
            color=colours[curve.name], annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colours[curve.name], "lw": 0.6, "alpha": 0.6,
                        "shrinkA": 0, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def _height(axes: Axes, y: float) -> float:
    """Where a value lies, as a share of the panel's height."""
    bottom, top = map(float, axes.get_ylim())
    if axes.get_yscale() == "log":
        y, bottom, top = log10(y), log10(bottom), log10(top)
    return (y - bottom) / (top - bottom)
