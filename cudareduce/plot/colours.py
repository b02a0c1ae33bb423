"""Colours that the colour-blind tell apart, of Okabe and Ito's palette (Color Universal Design,
2008) those that can be read on white and on black alike; kernels and libraries differ by their line
as well."""

from __future__ import annotations

from collections.abc import Iterable

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
FAINT, LIMIT = "#BBBBBB", "#777777"


def coloured(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in their order."""
    return {name: PALETTE[k % len(PALETTE)] for k, name in enumerate(dict.fromkeys(names))}
