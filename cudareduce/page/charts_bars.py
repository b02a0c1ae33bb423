"""Bars, and points of change, by Altair."""

from __future__ import annotations

from typing import Any

from cudareduce.page.charts_data import ROWS, Made
from cudareduce.page.colours import LIMIT, NAMED, WHISKER, named
from cudareduce.plot.colours import PALETTE, coloured
from cudareduce.plot.figure import Bar, Bars

_ROW = 21
_WHO = named({"kernel": PALETTE[0], "library": PALETTE[4]})
_CHANGES = named({"slower": PALETTE[1], "faster": PALETTE[2], "no change": PALETTE[7]})


def bars_chart(figure: Bars) -> Made:
    """A row a name: its bar, its interval, its value behind it."""
    import altair

    alt: Any = altair  # it is not typed throughout
    change = figure.axis.scale == "change"
    groups = list(dict.fromkeys(bar.group for bar in figure.bars))
    colours = named(coloured(groups)) if len(groups) > 1 else _CHANGES if change else _WHO
    kinds = [_kind(bar, change, len(groups) > 1) for bar in figure.bars]
    rows = [_row(bar, kind) for bar, kind in zip(figure.bars, kinds, strict=True)]
    base = alt.Chart(alt.NamedData(ROWS))
    y = alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=180, ticks=False))
    offset: dict[str, Any] = (
        {"yOffset": alt.YOffset("group:N", sort=groups)} if len(groups) > 1 else {}
    )
    x = alt.X(
        "value:Q",
        title=figure.axis.title,
        axis=alt.Axis(tickCount=6),
        scale=alt.Scale(domain=_ends(figure), nice=False),
    )
    seen = list(dict.fromkeys(kinds))
    below = alt.Legend(title=None, orient="top", columns=1 if len(groups) > 1 else 3)
    legend = below if len(seen) > 1 else None
    colour = alt.Color("kind:N", legend=legend,
                       scale=alt.Scale(domain=seen, range=[colours[k] for k in seen]))  # fmt: skip
    words = [alt.Tooltip("name:N"), alt.Tooltip("told:N", title="measured")]
    shape = base.mark_point(size=60, filled=True, opacity=1) if change else base.mark_bar()
    layers = [
        shape.encode(x=x, y=y, color=colour, tooltip=words, **offset),
        base.mark_rule(strokeWidth=1.4, color=NAMED[PALETTE[7]] if change else WHISKER).encode(
            x=alt.X("low:Q"), x2="high:Q", y=y, tooltip=words, **offset),
        base.mark_text(align="left", dx=5, fontSize=10).encode(
            x=alt.X("end:Q"), y=y, text="brief:N", **offset).properties(name="briefs"),
        *_marks(alt, figure),
    ]  # fmt: skip
    names = len({bar.name for bar in figure.bars})
    # A number, not a step a row: with that Vega-Lite warns of a width that it fits all the same.
    height = names * (_ROW + 9 * (len(groups) - 1))
    return alt.layer(*layers).properties(height=height), rows


def _kind(bar: Bar, change: bool, grouped: bool) -> str:
    if grouped or not change:
        return bar.group if grouped else bar.who
    if bar.low is not None and bar.low > 0:
        return "slower"
    return "faster" if bar.high is not None and bar.high < 0 else "no change"


def _row(bar: Bar, kind: str) -> dict[str, Any]:
    low = bar.value if bar.low is None else bar.low
    high = bar.value if bar.high is None else bar.high
    return {
        "name": bar.name, "kind": kind, "group": bar.group, "value": bar.value, "low": low,
        "high": high, "end": max(bar.value, high), "brief": bar.brief, "told": bar.told,
    }  # fmt: skip


def _ends(figure: Bars) -> list[float]:
    """From 0, or as far below as above, with room for the words behind."""
    ends = [e for b in figure.bars for e in (b.value, b.low, b.high) if e is not None]
    if figure.axis.scale == "change":
        most = max(map(abs, ends)) or 1.0
        return [-1.05 * most, 1.3 * most]
    return [0.0, 1.25 * max([*ends, *(mark.at for mark in figure.marks)])]


def _marks(alt: Any, figure: Bars) -> list[Any]:
    marks = [(mark.at, mark.told) for mark in figure.marks]
    if figure.axis.scale == "change":
        marks.append((0.0, ""))
    found = []
    for k, (at, told) in enumerate(marks):
        data = alt.Chart(alt.Data(values=[{"at": at, "told": told}]))
        found.append(data.mark_rule(color=LIMIT, strokeDash=[2, 3]).encode(x="at:Q"))
        # to the left, one above the other: to the right a phone has no room
        text = data.mark_text(align="right", dx=-4, dy=-6 - 12 * k, color=LIMIT)
        found.append(text.encode(x="at:Q", y=alt.value(0), text="told:N"))
    return found
