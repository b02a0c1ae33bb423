"""Names of collectives and operators. Imports nothing, for a quick `--help`."""

from __future__ import annotations

from typing import Literal, get_args

Collective = Literal["all-reduce", "reduce-scatter", "reduce"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
#: The largest number of ranks; kernels' tables have this size.
MOST_RANKS = 8
#: Operators of arrays.
OPS = ("sum", "prod", "min", "max")
