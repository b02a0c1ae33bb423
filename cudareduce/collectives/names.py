"""Names of collectives and operators. Imports nothing, for a quick `--help`."""

from __future__ import annotations

from typing import Literal

Collective = Literal["all-reduce", "reduce-scatter", "reduce"]
#: The result of each collective.
COLLECTIVES: dict[Collective, str] = {
    "all-reduce": "the result of all ranks' arrays, element by element, on all of them",
    "reduce-scatter": "of that result each rank has a share",
    "reduce": "that result on rank 0",
}
#: The largest number of ranks; kernels' tables have this size.
MOST_RANKS = 8
#: Operators of arrays.
OPS = ("sum", "prod", "min", "max")
