"""Pictures as text, for a terminal: curves by plotext, bars and maps in characters."""

from __future__ import annotations

from collections.abc import Container, Iterator
from textwrap import fill

from cudareduce.escapes import shown
from cudareduce.plot.cut import cut
from cudareduce.plot.figure import Bar, Bars, Figure, Grid, Lines
from cudareduce.plot.text_lines import lines_text

#: Lines of a picture of curves, and what fewer columns than these have no room for.
HEIGHT, NARROWEST = 20, 60
#: Characters of a map's field where not all have room for their names.
_FIELD = 14


def text_of(figure: Figure, width: int, *, colour: bool, height: int = HEIGHT) -> str:
    """A picture as wide as a terminal, in lines that end in a line break. Curves without plotext
    are an EnvironmentProblem."""
    body: Iterator[str]
    if isinstance(figure, Lines):
        body = lines_text(figure, width, height, colour=colour)
    elif isinstance(figure, Bars):
        body = _bars(figure, width)
    else:
        body = _grid(figure, width)
    notes = (fill(shown(note), width, subsequent_indent="  ") for note in figure.notes)
    return "\n".join([fill(shown(figure.title), width), *body, *notes, ""])


def _bars(figure: Bars, width: int) -> Iterator[str]:
    """A name, its bar, and its value behind it; a change is a point beside 0."""
    names = min(width // 3, max(len(shown(bar.name)) for bar in figure.bars))
    briefs = max(len(bar.brief) for bar in figure.bars)
    room = max(10, width - names - briefs - 4)
    most = max([abs(bar.value) for bar in figure.bars] + [mark.at for mark in figure.marks]) or 1.0
    change, above = figure.axis.scale == "change", ""
    inside = {round(room * m.at / most): m.told for m in figure.marks if m.at < most}
    for bar in figure.bars:
        name = "" if bar.name == above else bar.name
        above = bar.name
        drawn = _point(bar, room, most) if change else _full(bar, room, most, inside)
        yield f" {cut(shown(name), names):<{names}} {drawn} {shown(bar.brief)}".rstrip()
    told = [f"│ is {words}" for words in inside.values()]
    told += [f"the full width is {mark.told}" for mark in figure.marks if mark.at == most]
    if told:
        yield "; ".join(told)


def _full(bar: Bar, room: int, most: float, marked: Container[int]) -> str:
    full = round(room * bar.value / most)
    return "█" * full + "".join("│" if k in marked else "░" for k in range(full, room))


def _point(bar: Bar, room: int, most: float) -> str:
    half = room // 2
    cells = [" "] * (2 * half + 1)
    cells[half] = "|"
    cells[half + round(half * bar.value / most)] = "o"
    return "".join(cells)


def _grid(figure: Grid, width: int) -> Iterator[str]:
    """Names of the fastest, several tables of columns where they do not fit one."""
    names = max(map(len, figure.rows))
    found = {(cell.row, cell.column): cell for cell in figure.cells}
    room = width - names - 2
    wide = max(len(shown(cell.name)) for cell in figure.cells) + 2
    field = wide if (wide + 1) * len(figure.columns) <= room else min(wide, _FIELD)
    abreast = max(1, room // (field + 1))
    for start in range(0, len(figure.columns), abreast):
        columns = figure.columns[start : start + abreast]
        yield f" {'':<{names}} {' '.join(f'{column:<{field}}' for column in columns)}".rstrip()
        for row in figure.rows:
            cells = [found.get((row, column)) for column in columns]
            words = (
                "" if cell is None else cut(shown(cell.name), field - 2) + " ~" * bool(cell.close)
                for cell in cells
            )
            yield f" {row:<{names}} {' '.join(f'{word:<{field}}' for word in words)}".rstrip()
