"""Colours that the colour-blind tell apart: the hues of Okabe and Ito's palette (Color Universal
Design, 2008), dark enough for names on white. Nothing is told by colour alone."""

from __future__ import annotations

from collections.abc import Iterable

PALETTE = ("#0072B2", "#C44601", "#007A5A", "#B0518A", "#8F6400", "#3A8FB7", "#7453A6", "#6B6B6B")
FAINT, LIMIT = "#BBBBBB", "#777777"


def coloured(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in their order."""
    return {name: PALETTE[k % len(PALETTE)] for k, name in enumerate(dict.fromkeys(names))}
