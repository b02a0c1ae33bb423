"""A table with title and notes, from which every output format is rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Section:
    """A title, lines below it (`head`), a table of text cells, and notes. The first `texts` columns
    hold words, the others numbers; `rules` are the rows with a gap above them."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    texts: int = 1
    rules: tuple[int, ...] = ()
    head: tuple[str, ...] = ()


def alignment(section: Section, column: int) -> Literal["left", "right"]:
    """Words are aligned to the left, numbers to the right."""
    return "left" if column < section.texts else "right"
