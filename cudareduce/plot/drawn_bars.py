"""Bars by Matplotlib: a name a row, its value and its share at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudareduce.plot.colours import LIMIT, PALETTE, coloured
from cudareduce.plot.cut import cut
from cudareduce.plot.figure import Bar, Bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KERNEL, _LIBRARY, _FASTER, _SLOWER, _SAME = (
    PALETTE[0], PALETTE[4], PALETTE[2], PALETTE[1], "#999999"
)  # fmt: skip

#: Characters of a name.
_NAME = 40


def draw_bars(figure: Bars, axes: Axes) -> None:
    """Bars with whiskers, or points with them where values are changes; groups beside each
    other."""
    names = list(dict.fromkeys(bar.name for bar in figure.bars))
    groups = list(dict.fromkeys(bar.group for bar in figure.bars))
    height = 0.78 / len(groups)
    ends = [end for b in figure.bars for end in (b.value, b.low, b.high) if end is not None]
    ends += [mark.at for mark in figure.marks]
    span = max(ends) - min(0.0, *ends)
    for bar in figure.bars:
        place = names.index(bar.name) + (groups.index(bar.group) - (len(groups) - 1) / 2) * height
        _draw_bar(figure, bar, place, height, axes, groups, span)
    if figure.axis.scale != "change" and len({bar.who for bar in figure.bars}) > 1 == len(groups):
        _tell_colours(axes)
    axes.set_yticks(range(len(names)), [cut(name, _NAME) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.9 if figure.marks else -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E6E6E6", lw=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(figure.axis.title)
    if figure.axis.scale == "change":
        axes.axvline(0, color="#333333", lw=1)
        most = max(abs(end) for end in ends) * 1.05 or 1.0
        axes.set_xlim(-most, most * 1.7)
    else:
        axes.set_xlim(0, max(ends) * 1.3)
    for k, mark in enumerate(figure.marks):
        axes.axvline(mark.at, color=LIMIT, lw=1, ls=(0, (1, 1.5)) if k == 0 else "-", zorder=1)
        axes.annotate(mark.told, (mark.at, 1.0), xycoords=axes.get_xaxis_transform(), va="top",
                      ha="right" if k == 0 else "left", fontsize=8.5, color="#555555",
                      xytext=(-3 if k == 0 else 3, 0), textcoords="offset points")  # fmt: skip


def _draw_bar(
    figure: Bars, bar: Bar, place: float, height: float, axes: Axes, groups: list[str], span: float
) -> None:
    colour = _colour(figure, bar, groups)
    whisker = None
    if bar.low is not None and bar.high is not None:
        whisker = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
    if figure.axis.scale == "change":
        axes.errorbar(bar.value, place, xerr=whisker, fmt="o", ms=5, color=colour, elinewidth=1.6)
    else:
        axes.barh(place, bar.value, height, color=colour, xerr=whisker,
                  error_kw={"elinewidth": 1.2, "ecolor": "#222222", "capsize": 2})  # fmt: skip
    end = max(bar.value, bar.high or bar.value)
    size = 8.0 if len(groups) == 1 else 6.5
    axes.annotate(
        bar.brief, (end + span * 0.008, place), va="center", fontsize=size, color="#333333",
        bbox={"boxstyle": "square,pad=0.08", "fc": "white", "ec": "none", "alpha": 0.75},
        zorder=5, in_layout=False,
    )  # fmt: skip


def _tell_colours(axes: Axes) -> None:
    """Whose bars are whose, where there is most room."""
    from matplotlib.patches import Patch

    told = [Patch(color=_KERNEL, label="kernels"), Patch(color=_LIBRARY, label="libraries")]
    axes.legend(handles=told, loc="lower right", frameon=False, fontsize=8.5)


def _colour(figure: Bars, bar: Bar, groups: list[str]) -> str:
    if len(groups) > 1:
        return coloured(groups)[bar.group]
    if figure.axis.scale != "change":
        return _LIBRARY if bar.who == "library" else _KERNEL
    if bar.low is not None and bar.low > 0:
        return _SLOWER
    return _FASTER if bar.high is not None and bar.high < 0 else _SAME
