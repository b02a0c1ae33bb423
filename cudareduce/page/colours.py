"""Colours by the names that the page's style gives them, which is light or dark."""

from __future__ import annotations

from collections.abc import Mapping

from cudareduce.plot.colours import PALETTE

FAINT, LIMIT, WHISKER = "var(--faint)", "var(--limit)", "var(--text)"
NAMED = {colour: f"var(--colour-{k})" for k, colour in enumerate(PALETTE)}


def named(colours: Mapping[str, str]) -> dict[str, str]:
    """The same with the style's names in the place of colours."""
    return {name: NAMED[colour] for name, colour in colours.items()}
