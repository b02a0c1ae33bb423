"""Figures as Vega-Lite specifications, and as PNG and SVG files made from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from textwrap import wrap
from typing import Any

from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.report.plot.figure import (
    Axis,
    Bar,
    Bars,
    Figure,
    Grid,
    Lines,
    Reference,
    shorten,
    spread,
)

Spec = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
#: Pixels: the plot area of a file, of curves down, of a row of bars, of a cell of a grid.
_WIDTH, _HEIGHT, _ROW, _CELL = 640, 380, 21, 44
#: Pixels of a character in labels, and characters of names, titles and notes.
_CHARACTER, _NAME, _TITLE, _NOTE, _CELL_LINE = 6, 32, 88, 120, 10
#: The smallest distance of two labels, as a share of the height.
_LABEL_GAP = 0.045
#: The figures that one file holds.
_MAX_FIGURES = 12
#: Leaves out a text in a browser window that has no room for it.
_NOT_ON_PHONE = {"condition": {"test": "windowSize()[0] < 620", "value": ""}}
#: The ends of leader lines and the beginnings of labels, in pixels beyond the plot area.
_LEADER, _LABEL = 14, 18


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a chart, as CSS colours."""

    palette: tuple[str, ...]
    text: str
    quiet: str
    grid: str
    faint: str


#: The hues of Okabe and Ito's palette (Color Universal Design, 2008), which people with colour
#: blindness can tell apart, dark enough for labels on white.
LIGHT = Theme(
    ("#0072B2", "#C44601", "#007A5A", "#B0518A", "#8F6400", "#3A8FB7", "#7453A6", "#6B6B6B"),
    text="#1B1F24", quiet="#57606A", grid="#E6E8EB", faint="#B9BEC4",
)  # fmt: skip
#: Custom properties of the page's style sheet, which follow the browser's light or dark scheme.
PAGE = Theme(
    tuple(f"var(--colour-{k})" for k in range(8)),
    text="var(--text)", quiet="var(--quiet)", grid="var(--grid)", faint="var(--faint)",
)  # fmt: skip


def image(figures: Sequence[Figure], style: str) -> bytes:
    """One file of all figures below each other, in the format `png` or `svg`. Raises UsageError for
    too many figures and EnvironmentProblem without vl-convert."""
    if len(figures) > _MAX_FIGURES:
        raise UsageError(
            f"{len(figures)} charts do not fit one file: draw up to {_MAX_FIGURES} with --only or "
            "fewer results"
        )
    try:
        import vl_convert
    except ModuleNotFoundError:
        raise EnvironmentProblem(
            "PNG and SVG need vl-convert-python: pip install 'cudareduce[plot]'"
        ) from None
    panels = [
        {"width": max(_WIDTH, min_width(f)), "title": _title(f), **_body(f, LIGHT)} for f in figures
    ]
    spec = {
        "$schema": _SCHEMA, "vconcat": panels, "spacing": 32, "padding": 16,
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
        "config": _config(LIGHT) | {"background": "white"},
    }  # fmt: skip
    if style == "svg":
        return str(vl_convert.vegalite_to_svg(spec)).encode()
    return bytes(vl_convert.vegalite_to_png(spec, scale=2))


def page_spec(figure: Figure) -> Spec:
    """The specification for a web page: as wide as its container, in the colours of the page, and
    without a title."""
    return {
        "$schema": _SCHEMA, "description": figure.title, "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _config(PAGE) | {"background": None}, **_body(figure, PAGE),
    }  # fmt: skip


def min_width(figure: Figure) -> int:
    """The width in pixels below which the names in a grid would overlap; 0 for other figures."""
    if not isinstance(figure, Grid):
        return 0
    longest = max(len(line) for cell in figure.cells for line in _cell_lines(cell.name))
    return len(figure.columns) * ((longest + 2) * _CHARACTER + 8)


def notes(figure: Figure) -> tuple[str, ...]:
    """The notes of a figure, with a legend of the marks that only a drawing has."""
    if isinstance(figure, Bars) and any(bar.low is not None for bar in figure.bars):
        return (*figure.notes, "whiskers: 95 % intervals")
    if isinstance(figure, Lines):
        has_bands = any(p.low is not None for series in figure.series for p in series.points)
        dashed = any(series.role == "library" for series in figure.series)
        return (*figure.notes, *["bands: 95 % intervals"] * has_bands,
                *["dashed: libraries"] * dashed)  # fmt: skip
    return figure.notes


def _title(figure: Figure) -> Spec:
    return {"text": wrap(figure.title, _TITLE), "subtitle": wrap("; ".join(notes(figure)), _NOTE)}


def _config(theme: Theme) -> Spec:
    return {
        "font": "Liberation Sans, Arial, Helvetica, sans-serif",
        "view": {"stroke": None},
        "text": {"color": theme.text},
        "title": {"anchor": "start", "frame": "group", "offset": 12, "fontSize": 14,
                  "color": theme.text, "subtitleColor": theme.quiet, "subtitleFontSize": 11},
        "axis": {"labelColor": theme.text, "titleColor": theme.quiet, "gridColor": theme.grid,
                 "domainColor": theme.quiet, "tickColor": theme.quiet, "labelFontSize": 11,
                 "titleFontWeight": "normal"},
        "axisY": {"labelLimit": 220},
        "legend": {"labelColor": theme.text, "title": None, "orient": "top", "labelLimit": 400},
    }  # fmt: skip


def _body(figure: Figure, theme: Theme) -> Spec:
    if isinstance(figure, Lines):
        return _lines(figure, theme)
    return _bars(figure, theme) if isinstance(figure, Bars) else _grid(figure, theme)


def _scale_of(values: Mapping[str, object]) -> Spec:
    return {"domain": list(values), "range": list(values.values())}


def _coloured(names: Iterable[str], theme: Theme) -> dict[str, str]:
    """A colour for each distinct name."""
    palette = theme.palette
    return {name: palette[k % len(palette)] for k, name in enumerate(dict.fromkeys(names))}


def _tooltip(**titles: str) -> list[Spec]:
    return [{"field": field, "type": "nominal", "title": title} for field, title in titles.items()]


def _scale(axis: Axis, ends: tuple[float, float]) -> Spec:
    kinds: dict[str, Spec] = {
        "linear": {"type": "linear"}, "log2": {"type": "log", "base": 2}, "log10": {"type": "log"}
    }  # fmt: skip
    return {**kinds[axis.scale], "domain": list(ends), "nice": False}


def _lines(figure: Lines, theme: Theme) -> Spec:
    """Grey curves, intervals as bands, highlighted curves with points, and labels at the right."""
    limits = {series.name: theme.quiet for series in figure.series if series.role == "limit"}
    named = (series.name for series in figure.highlighted if series.role != "limit")
    colours = _coloured(named, theme) | limits
    x = {"field": "x", "type": "quantitative", "title": figure.x.title,
         "scale": _scale(figure.x, figure.x_range), "axis": _x_axis(figure)}  # fmt: skip
    y = {"field": "y", "type": "quantitative", "title": figure.y.title,
         "scale": _scale(figure.y, figure.y_range), "axis": _y_axis(figure)}  # fmt: skip
    colour = {"field": "name", "type": "nominal", "legend": None, "scale": _scale_of(colours)}
    roles = {"kernel": [1, 0], "library": [5, 3], "limit": [2, 3]}
    dash = {"field": "role", "type": "nominal", "legend": None, "scale": _scale_of(roles)}
    shape = {"field": "name", "type": "nominal", "legend": None, "scale": {"domain": [*colours]}}
    tooltip = _tooltip(name="name", where=figure.x.title, text="measured")
    encoding = {"x": x, "y": y, "tooltip": tooltip}
    end = {"value": {"expr": f"width + {_LEADER}"}}
    is_grey, is_coloured = ([{"filter": f"{sign}datum.highlighted"}] for sign in ("!", ""))
    labels = {"data": {"values": _labels(figure)}}
    layers = [
        *_references(figure.references, theme),
        {"transform": is_grey, "mark": {"type": "line", "strokeWidth": 1, "color": theme.faint},
         "encoding": {"x": x, "y": y, "detail": {"field": "name"}, "strokeDash": dash}},
        {"transform": is_grey, "mark": {"type": "point", "filled": True, "size": 12,
                                        "color": theme.faint, "opacity": 1},
         "encoding": encoding},
        {"transform": is_coloured, "mark": {"type": "area", "opacity": 0.2},
         "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"},
                      "color": colour}},
        {"transform": is_coloured, "mark": {"type": "line", "strokeWidth": 2},
         "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
        {"transform": [{"filter": "datum.highlighted && datum.role !== 'limit'"}],
         "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
         "encoding": {**encoding, "color": colour, "shape": shape}},
        {**labels, "mark": {"type": "rule", "strokeWidth": 0.7, "opacity": 0.7},
         "encoding": {"x": x, "y": y, "x2": end, "y2": {"field": "label_y"}, "color": colour}},
        {**labels, "mark": {"type": "text", "align": "left", "dx": _LABEL, "fontSize": 11},
         "encoding": {"x": {"value": "width"}, "y": {**y, "field": "label_y"},
                      "text": {"field": "label"}, "color": colour}},
    ]  # fmt: skip
    values = [
        {"name": s.name, "role": s.role, "highlighted": s.highlighted, "x": p.x, "y": p.y,
         "low": p.y if p.low is None else p.low, "high": p.y if p.high is None else p.high,
         "text": p.text, "where": f"{p.x:,.6g}" if figure.x.scale == "log10" else
         f"{p.x:,.0f}".replace(",", " ")}
        for s in figure.series for p in s.points
    ]  # fmt: skip
    return {"height": _HEIGHT, "data": {"values": values}, "layer": layers}


def _y_axis(figure: Lines) -> Spec:
    """Ticks at powers of ten on a logarithmic axis that has several."""
    low, high = figure.y_range
    powers = [10.0**k for k in range(-9, 16) if low <= 10.0**k <= high]
    is_wide = figure.y.scale != "linear" and len(powers) > 1
    return {"format": ".6~g", **({"values": powers} if is_wide else {"tickCount": 6})}


def _x_axis(figure: Lines) -> Spec:
    """Ticks at powers of two, at most ten, written as the command line takes them."""
    plain = {"grid": False, "labelFlush": False}
    if figure.x.scale != "log2":
        return {**plain, "tickCount": 8, "format": ".6~g"}
    first, last = (int(end).bit_length() - 1 for end in figure.x_range)
    values = [2**k for k in range(first, last + 1, max(1, (last - first + 9) // 10))]
    power = "'2^' + format(log(datum.value) / LN2, '.0f')"
    return {**plain, "values": values, "labelExpr": f"datum.value < 1024 ? datum.value : {power}"}


def _labels(figure: Lines) -> list[Spec]:
    """The last points of the highlighted curves, and positions of labels that do not overlap."""
    is_log = figure.y.scale != "linear"
    low, high = (log10(y) if is_log else y for y in figure.y_range)
    ends = [series.points[-1] for series in figure.highlighted]
    heights = [log10(p.y) if is_log else p.y for p in ends]
    positions = spread(heights, _LABEL_GAP * (high - low), low, high)
    return [
        {"name": series.name, "label": shorten(series.name, _NAME), "x": p.x, "y": p.y,
         "label_y": 10**label_y if is_log else label_y}
        for series, p, label_y in zip(figure.highlighted, ends, positions, strict=True)
    ]  # fmt: skip


def _references(references: Sequence[Reference], theme: Theme) -> list[Spec]:
    """Lines across with labels: at the left end of a horizontal line, below it if another line is
    above; above the chart for a vertical one, where labels are stacked."""
    layers: list[Spec] = []
    vertical = [line for line in references if line.axis == "x"]
    highest = max((line.value for line in references if line.axis == "y"), default=0.0)
    for line in references:
        data = {"values": [{"at": line.value, "label": line.label}]}
        at = {line.axis: {"field": "at", "type": "quantitative"}}
        if line.axis == "y":
            across, alignment = {"x": {"value": 0}}, {"align": "left", "dx": 4}
            alignment["dy"] = -7 if line.value == highest else 9
        else:
            across, alignment = {"y": {"value": 0}}, {"align": "right", "dx": 2}
            alignment["dy"] = -6 - 12 * vertical.index(line)
        layers += [
            {"data": data, "encoding": at,
             "mark": {"type": "rule", "color": theme.quiet, "strokeDash": [2, 3]}},
            {"data": data, "mark": {"type": "text", "color": theme.quiet, **alignment},
             "encoding": {**at, **across, "text": {"field": "label"}}},
        ]  # fmt: skip
    return layers


def _bars(figure: Bars, theme: Theme) -> Spec:
    """A row for each name: bars or, for changes, points; whiskers; values in a column at the right,
    where no bar or line crosses them."""
    groups = figure.groups
    if len(groups) > 1:
        colours = _coloured(groups, theme)
        kinds = [bar.group for bar in figure.bars]
    elif figure.is_change:
        colours = {"slower": theme.palette[1], "faster": theme.palette[2],
                   "no clear change": theme.palette[7]}  # fmt: skip
        kinds = [_direction(bar) for bar in figure.bars]
    else:
        colours = {"kernels": theme.palette[0], "libraries": theme.palette[4]}
        kinds = ["libraries" if bar.is_library else "kernels" for bar in figure.bars]
    used = {kind: colours[kind] for kind in colours if kind in kinds}
    values = [
        {"name": bar.name, "kind": kind, "group": bar.group, "value": bar.value, "text": bar.text,
         "low": bar.value if bar.low is None else bar.low, "label": bar.label,
         "high": bar.value if bar.high is None else bar.high}
        for bar, kind in zip(figure.bars, kinds, strict=True)
    ]  # fmt: skip
    y: Spec = {"field": "name", "type": "nominal", "title": None, "sort": None,
               "axis": {"ticks": False, "labelPadding": 6}}  # fmt: skip
    rows: Spec = {"y": y, "tooltip": _tooltip(name="name", text="measured")}
    if len(groups) > 1:
        rows["yOffset"] = {"field": "group", "type": "nominal", "sort": groups}
    x = {"field": "value", "type": "quantitative", "title": figure.axis.title,
         "axis": {"tickCount": 6, "format": ".6~g"},
         "scale": {"domain": list(figure.range), "nice": False}}  # fmt: skip
    colour = {"field": "kind", "type": "nominal", "scale": _scale_of(used),
              "legend": {} if len(used) > 1 else None}  # fmt: skip
    if figure.is_change:
        mark, line_colour = {"type": "point", "size": 50, "filled": True, "opacity": 1}, theme.quiet
    else:
        mark, line_colour = {"type": "bar"}, theme.text
    values_layer = {"mark": mark, "encoding": {**rows, "x": x, "color": colour}}
    whiskers = {
        "mark": {"type": "rule", "strokeWidth": 1.4, "color": line_colour},
        "encoding": {**rows, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
    }
    zero = {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": theme.text},
        "encoding": {"x": {"datum": 0}},
    }
    layers = [
        *([zero, whiskers, values_layer] if figure.is_change else [values_layer, whiskers]),
        {"mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 10},
         "encoding": {**rows, "x": {"value": "width"},
                      "text": {"field": "label", **_NOT_ON_PHONE}}},
        *_references(figure.references, theme),
    ]  # fmt: skip
    # A height in pixels, not for each step: Vega-Lite cannot fit a width next to a step.
    height = len(figure.names) * (_ROW + 12 * (len(groups) - 1))
    return {"height": height, "data": {"values": values}, "layer": layers}


def _direction(bar: Bar) -> str:
    if bar.low is not None and bar.low > 0:
        return "slower"
    return "faster" if bar.high is not None and bar.high < 0 else "no clear change"


def _grid(figure: Grid, theme: Theme) -> Spec:
    """A rectangle for each cell in the colour of the name in it."""
    values = [
        {"row": cell.row, "column": cell.column, "name": cell.name, "text": cell.text,
         "label": "\n".join(_cell_lines(cell.name)) + " ~" * bool(cell.ties),
         "ties": ", ".join(cell.ties) or "none"}
        for cell in figure.cells
    ]  # fmt: skip
    encoding = {
        "x": {"field": "column", "type": "ordinal", "title": figure.x_title,
              "sort": list(figure.columns), "axis": {"labelAngle": 0, "ticks": False}},
        "y": {"field": "row", "type": "ordinal", "title": None, "sort": list(figure.rows),
              "axis": {"ticks": False}},
        "tooltip": _tooltip(text="fastest", ties="tied"),
    }  # fmt: skip
    scale = _scale_of(_coloured((cell.name for cell in figure.cells), theme))
    colour = {"field": "name", "type": "nominal", "legend": None, "scale": scale}
    centre = "-5.5 * (split(datum.label, '\\n').length - 1)"
    return {
        "height": _CELL * len(figure.rows), "data": {"values": values},
        "layer": [
            {"mark": {"type": "rect", "opacity": 0.3, "strokeWidth": 1.2},
             "encoding": {**encoding, "color": colour, "stroke": colour}},
            {"mark": {"type": "text", "fontSize": 10, "lineBreak": "\n", "dy": {"expr": centre}},
             "encoding": {**encoding, "text": {"field": "label"}}},
        ],
    }  # fmt: skip


def _cell_lines(name: str) -> list[str]:
    """The name in lines that break after a colon or an underscore."""
    lines = [""]
    for word in shorten(name, _NAME).replace(":", ":\0").replace("_", "_\0").split("\0"):
        if lines[-1] and len(lines[-1] + word) > _CELL_LINE:
            lines.append("")
        lines[-1] += word
    return lines
