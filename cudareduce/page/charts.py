"""Pictures as Vega-Lite charts, by Altair: values under the pointer, intervals, names beside."""

from __future__ import annotations

from typing import Any

from cudareduce.page.charts_bars import bars_chart
from cudareduce.page.charts_data import ROWS
from cudareduce.page.charts_grid import grid_chart, least_width
from cudareduce.page.charts_lines import lines_chart
from cudareduce.plot.figure import Bars, Figure, Grid, Lines


def chart(figure: Figure) -> dict[str, Any]:
    """The specification of a chart as wide as what holds it, and no less than `least`: the page
    scrolls it. Colours of text, axes and ground are left to the page, which is light or dark."""
    if isinstance(figure, Lines):
        made, rows = lines_chart(figure)
    elif isinstance(figure, Bars):
        made, rows = bars_chart(figure)
    else:
        made, rows = grid_chart(figure)
    spec: dict[str, Any] = made.properties(width="container").to_dict(validate=False)
    spec.pop("config", None)
    least = least_width(figure) if isinstance(figure, Grid) else 0
    fit = {"type": "fit-x", "contains": "padding"}
    return spec | {
        "description": figure.title,
        "autosize": fit,
        "datasets": {ROWS: rows},
        "usermeta": {"least": least},
    }
