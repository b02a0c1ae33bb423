"""Pictures as files: PNG and SVG, by Matplotlib."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from textwrap import fill
from typing import TYPE_CHECKING, Any

from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.plot.drawn_bars import draw_bars
from cudareduce.plot.drawn_grid import draw_grid
from cudareduce.plot.drawn_lines import draw_lines
from cudareduce.plot.figure import Bars, Figure, Grid, Lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches: of a panel across, of one of curves down, of a row of bars or of a map.
_WIDTH, _HEIGHT, _ROW, _FRAME = 9.0, 5.2, 0.27, 1.5
#: More than this is no picture that anyone looks at.
_MOST = 12
#: Characters across, of a heading and of a note.
_TITLE, _NOTE = 78, 112
_STYLE: Any = {
    "font.size": 10, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": "#888888", "axes.labelcolor": "#333333",
    "xtick.color": "#333333", "ytick.color": "#333333", "svg.fonttype": "path",
    "svg.hashsalt": "cudareduce", "text.parse_math": False, "axes.titlepad": 10.0,
}  # fmt: skip


def drawn(figures: Sequence[Figure], style: str) -> bytes:
    """One file of all of them, below each other, in the format `png` or `svg`. More than fit are a
    UsageError, Matplotlib's absence is an EnvironmentProblem."""
    if len(figures) > _MOST:
        raise UsageError(
            f"{len(figures)} pictures do not fit one file: take up to {_MOST} with --only or fewer "
            "results"
        )
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ModuleNotFoundError:
        raise EnvironmentProblem(
            "PNG and SVG need Matplotlib: pip install 'cudareduce[plot]'"
        ) from None
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that its font lacks
        heights = [_height(figure) for figure in figures]
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        canvas = Canvas(figsize=(_WIDTH, sum(heights)), layout=layout)
        panels = canvas.subplots(len(figures), 1, squeeze=False, height_ratios=heights)
        for figure, axes in zip(figures, panels[:, 0], strict=True):
            _draw(figure, axes)
        found = BytesIO()
        canvas.savefig(
            found, format=style, dpi=150, metadata={"Date": None} if style == "svg" else {}
        )
    return found.getvalue()


def _draw(figure: Figure, axes: Axes) -> None:
    if isinstance(figure, Lines):
        draw_lines(figure, axes)
    elif isinstance(figure, Bars):
        draw_bars(figure, axes)
    else:
        draw_grid(figure, axes)
    axes.set_title(fill(figure.title, _TITLE), fontweight="bold", wrap=True).set_in_layout(False)
    if figure.notes:
        below = "\n".join(fill(note, _NOTE) for note in figure.notes)
        axes.annotate(
            below, (0, 0), xycoords="axes fraction", xytext=(0, -38), textcoords="offset points",
            va="top", fontsize=8, color="#666666",
        )  # fmt: skip


def _height(figure: Figure) -> float:
    if isinstance(figure, Lines):
        return _HEIGHT + 0.2 * len(figure.notes)
    rows = len(figure.rows) if isinstance(figure, Grid) else len(figure.bars)
    return _FRAME + _ROW * rows * (2 if isinstance(figure, Grid) else 1) + 0.2 * len(figure.notes)
