"""Curves by Altair."""

from __future__ import annotations

from math import log10
from typing import Any

from cudareduce.page.charts_data import ROWS, Made
from cudareduce.page.colours import FAINT, LIMIT, named
from cudareduce.plot.colours import coloured
from cudareduce.plot.figure import Lines
from cudareduce.plot.spread import spread

_HEIGHT = 380
#: The least distance of two names, as a share of the height.
_GAP = 0.045
_POWER = "'2^' + format(log(datum.value) / LN2, '.0f')"


def lines_chart(figure: Lines) -> Made:
    """Bands of intervals, curves, points with words, names at the right, what lies across."""
    import altair

    alt: Any = altair  # it is not typed throughout
    colours = named(coloured(c.name for c in figure.curves if c.strong))
    y = alt.Y("y:Q", title=figure.y.title, axis=alt.Axis(format=".6~g"),
              scale=_scale(alt, figure.y.scale, *_ends(figure)))  # fmt: skip
    axis = alt.Axis(labelOverlap="greedy", labelSeparation=8, **_powers(figure))
    x = alt.X("x:Q", title=figure.x.title, axis=axis,
              scale=_scale(alt, figure.x.scale, *_across(figure)))  # fmt: skip
    colour = alt.Color("name:N", legend=None, scale=alt.Scale(
        domain=[*colours, " "], range=[*colours.values(), FAINT]))  # fmt: skip
    drawn = alt.Chart(alt.NamedData(ROWS))
    strong, faint = drawn.transform_filter("datum.strong"), drawn.transform_filter("!datum.strong")
    dash = alt.StrokeDash("who:N", legend=None, scale=alt.Scale(
        domain=["kernel", "library"], range=[[1, 0], [5, 3]]))  # fmt: skip
    words = [alt.Tooltip("name:N"), alt.Tooltip("where:N", title=figure.x.title),
             alt.Tooltip("told:N", title="measured")]  # fmt: skip
    behind = [
        faint.mark_line(strokeWidth=1, color=FAINT).encode(x=x, y=y, detail="name:N"),
        faint.mark_point(size=14, color=FAINT, filled=True).encode(x=x, y=y, tooltip=words),
    ]
    layers = [
        *_marks(alt, figure, x, y),
        *(behind if any(not c.strong for c in figure.curves) else ()),
        strong.mark_area(opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        strong.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, strokeDash=dash),
        strong.mark_point(size=42, filled=True, opacity=1).encode(
            x=x, y=y, color=colour, shape=alt.Shape("name:N", legend=None), tooltip=words),
        alt.Chart(alt.Data(values=_names(figure))).mark_text(align="left", dx=8, fontSize=11)
        .encode(x=x, y=y, text="name:N", color=colour),
    ]  # fmt: skip
    return alt.layer(*layers).properties(height=_HEIGHT), _rows(figure)


def _rows(figure: Lines) -> list[dict[str, Any]]:
    log = figure.x.scale == "log2"
    return [
        {
            "name": c.name, "who": c.who, "strong": c.strong, "x": p.x, "y": p.y,
            "low": p.y if p.low is None else p.low, "high": p.y if p.high is None else p.high,
            "told": p.told, "where": f"{p.x:,.0f}".replace(",", " ") if log else f"{p.x:g}",
        }
        for c in figure.curves for p in c.points
    ]  # fmt: skip


def _marks(alt: Any, figure: Lines, x: Any, y: Any) -> list[Any]:
    """What lies across, and what nothing can be above."""
    found: list[Any] = []
    for mark in figure.marks:
        at = alt.Chart(alt.Data(values=[{mark.axis: mark.at, "told": mark.told}]))
        if mark.axis == "y":
            found.append(at.mark_rule(color=LIMIT).encode(y=y))
            up = 9 if mark is figure.lower_mark else -7
            text = at.mark_text(align="left", dx=4, dy=up, color=LIMIT)
            found.append(text.encode(x=alt.value(0), y=y, text="told:N"))
        else:
            found.append(at.mark_rule(color=LIMIT).encode(x=x))
            text = at.mark_text(align="left", dx=4, dy=-6, color=LIMIT)
            found.append(text.encode(x=x, y=alt.value(_HEIGHT), text="told:N"))
    if figure.limit:
        points = [{"x": a, "y": b, "told": figure.limit.told} for a, b in figure.limit.points]
        half = max(b for _, b in figure.limit.points) / 2
        dotted = alt.Chart(alt.Data(values=points)).mark_line(color=LIMIT, strokeDash=[2, 3])
        found.append(dotted.encode(x=x, y=y))
        middle = next(p for p, (_, b) in zip(points, figure.limit.points, strict=True) if b >= half)
        named = alt.Chart(alt.Data(values=[middle])).mark_text(align="right", dx=-6, color=LIMIT)
        found.append(named.encode(x=x, y=y, text="told:N"))
    return found


def _scale(alt: Any, scale: str, low: float, high: float) -> Any:
    kinds = {"log2": {"type": "log", "base": 2}, "log10": {"type": "log", "base": 10}}
    return alt.Scale(domain=[low, high], nice=False, **kinds.get(scale, {"type": "linear"}))


def _across(figure: Lines) -> tuple[float, float]:
    places = [p.x for c in figure.curves for p in c.points]
    return min(places), max(places) if max(places) > min(places) else min(places) * 2


def _powers(figure: Lines) -> dict[str, Any]:
    """Ticks at powers of two, at every second one where there are many."""
    if figure.x.scale != "log2":
        return {}
    first, last = _across(figure)
    bits = range(int(first).bit_length() - 1, int(last).bit_length())
    values = [float(2**k) for k in bits if (k - bits[0]) % (2 if len(bits) > 8 else 1) == 0]
    return {"values": values, "labelExpr": _POWER}


def _ends(figure: Lines) -> tuple[float, float]:
    values = [p.y for c in figure.curves for p in c.points]
    values += [mark.at for mark in figure.marks if mark.axis == "y"]
    values += [b for _, b in figure.limit.points] if figure.limit else []
    if figure.y.scale == "log10":
        return min(values) / 1.25, max(values) * 1.25
    return 0.0, max(values) * 1.08


def _names(figure: Lines) -> list[dict[str, Any]]:
    """A name for each curve that counts, at the right end, none on top of another."""
    strong = [c for c in figure.curves if c.strong]
    (low, high), (_, last) = _ends(figure), _across(figure)
    log = figure.y.scale == "log10"
    bottom, top = (log10(low), log10(high)) if log else (low, high)
    ends = [log10(c.points[-1].y) if log else c.points[-1].y for c in strong]
    places = spread(ends, _GAP * (top - bottom), bottom, top)
    return [
        {"name": c.name, "x": last, "y": 10**at if log else at}
        for c, at in zip(strong, places, strict=True)
    ]
