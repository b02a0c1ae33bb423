"""A map by Altair."""

from __future__ import annotations

from typing import Any

from cudareduce.page.charts_data import ROWS, Made
from cudareduce.page.colours import named
from cudareduce.plot.colours import coloured
from cudareduce.plot.cut import broken, cut
from cudareduce.plot.figure import Cell, Grid

#: Pixels: of a field down, of a letter across, and beside the words of a field.
_FIELD, _LETTER, _BESIDE = 44, 6, 14
#: Characters of a name, and of a line of it.
_NAME, _LINE = 32, 10


def grid_chart(figure: Grid) -> Made:
    """A field for each place, in the colour of the name that stands in it."""
    import altair

    alt: Any = altair  # it is not typed throughout
    rows = [
        {
            "row": cell.row, "column": cell.column, "name": cell.name, "told": cell.told,
            "words": _words(cell),
            "close": ", ".join(cell.close) or "nobody",
        }
        for cell in figure.cells
    ]  # fmt: skip
    colours = named(coloured(cell.name for cell in figure.cells))
    base = alt.Chart(alt.NamedData(ROWS)).encode(
        x=alt.X("column:N", title=figure.across, sort=list(figure.columns),
                axis=alt.Axis(labelAngle=0, ticks=False)),
        y=alt.Y("row:N", title=None, sort=list(figure.rows), axis=alt.Axis(ticks=False)),
        tooltip=[alt.Tooltip("told:N", title="fastest"), alt.Tooltip("close:N", title="as close")],
    )  # fmt: skip
    colour = alt.Color("name:N", legend=None, scale=alt.Scale(
        domain=list(colours), range=list(colours.values())))  # fmt: skip
    field = base.mark_rect(opacity=0.3, strokeWidth=1.2).encode(color=colour, stroke=colour)
    words = base.mark_text(fontSize=10, lineBreak="\n").encode(text="words:N")
    return alt.layer(field, words).properties(height=_FIELD * len(figure.rows)), rows


def least_width(figure: Grid) -> int:
    """Pixels in which no field's words reach into the next one."""
    lines = [line for cell in figure.cells for line in _words(cell).split("\n")]
    return len(figure.columns) * (max(map(len, lines), default=0) * _LETTER + _BESIDE)


def _words(cell: Cell) -> str:
    return broken(cut(cell.name, _NAME), _LINE) + (" ~" if cell.close else "")
