"""A map by Matplotlib: in each place the name of the fastest, its colour that of the name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudareduce.plot.colours import coloured
from cudareduce.plot.cut import broken, cut
from cudareduce.plot.figure import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Characters of a name.
_NAME = 32


def draw_grid(figure: Grid, axes: Axes) -> None:
    """A field for each place that has something; libraries are hatched."""
    from matplotlib.patches import Rectangle

    colours = coloured(cell.name for cell in figure.cells)
    for cell in figure.cells:
        x, y = figure.columns.index(cell.column), figure.rows.index(cell.row)
        hatch = "///" if cell.who == "library" else None
        axes.add_patch(
            Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, fc=colours[cell.name], alpha=0.3,
                      ec=colours[cell.name], hatch=hatch, lw=0.8)
        )  # fmt: skip
        words = broken(cut(cell.name, _NAME), 13 if len(figure.columns) < 9 else 8) + (
            " ~" if cell.close else ""
        )
        axes.annotate(words, (x, y), ha="center", va="center", color="#111111",
                      fontsize=8 if len(figure.columns) < 9 else 6,
                      bbox={"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none",
                            "alpha": 0.8})  # fmt: skip
    axes.set_xlim(-0.5, len(figure.columns) - 0.5)
    axes.set_ylim(len(figure.rows) - 0.5, -0.5)
    axes.set_xticks(range(len(figure.columns)), figure.columns)
    axes.set_yticks(range(len(figure.rows)), figure.rows)
    axes.tick_params(length=0)
    axes.set_xlabel(figure.across)
    for side in axes.spines.values():
        side.set_visible(False)
