"""The group of a whole grid in a text, and whether its blocks wait for one another by it: a GPU
then holds all of them at one time, and others are launched as ever."""

from __future__ import annotations

import re
from collections.abc import Iterable

CALL = r"\s*\(\s*\)"
_NAMED = re.compile(
    r"\b(\w+)\s*(?:=\s*|\{\s*|\(\s*)(?:\w+::)*this_grid\s*\(|\bgrid_group\s*(?:const\s*)?&?\s*(\w+)"
)


def grids_in(code: str) -> Iterable[str]:
    """What stands for the group of the grid, as regular expressions: names, and its call."""
    names = {name for found in _NAMED.findall(code) for name in found if name}
    return [*(rf"\b{name}\b" for name in sorted(names)), rf"\b(?:\w+::)*this_grid{CALL}"]


def meets(code: str) -> bool:
    """Whether blocks wait by it, or others may do so that are given it."""
    if "this_grid" not in code:
        return False
    waits = (rf"{grid}\s*\.\s*(?:sync|barrier)|[(,]\s*{grid}\s*[,)]" for grid in grids_in(code))
    return re.search("|".join(waits), code) is not None
