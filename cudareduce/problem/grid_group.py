"""The group of a whole grid in a text, and whether its blocks wait for one another by it: a GPU
then holds all of them at one time, and others are launched as ever."""

from __future__ import annotations

import re
from collections.abc import Iterable

CALL = r"\s*\(\s*\)"
_NAMED = re.compile(r"\b(\w+)\s*(?:=\s*|\{\s*|\(\s*)(?:\w+::)*this_grid\s*\(")


def grids_in(code: str) -> Iterable[str]:
    """What stands for the group of the grid, as regular expressions: names, and its call."""
    return [*(rf"\b{name}\b" for name in _NAMED.findall(code)), rf"\b(?:\w+::)*this_grid{CALL}"]


def meets(code: str) -> bool:
    """Whether blocks wait by it, or others may do so that are given it."""
    if "this_grid" not in code:
        return False
    waits = (rf"{grid}\s*\.\s*(?:sync|barrier)|[(,]\s*{grid}\s*[,)]" for grid in grids_in(code))
    return "grid_group" in code or re.search("|".join(waits), code) is not None
