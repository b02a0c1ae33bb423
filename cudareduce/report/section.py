"""A table with its words, as whatever prints one takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Section:
    """A table with its heading, lines between the two, and the notes below it; cells are text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    texts: int = 1  # how many columns, from the left, hold words and not numbers
    rules: tuple[int, ...] = ()  # rows with a gap above them
    head: tuple[str, ...] = ()
