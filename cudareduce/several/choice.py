"""`peer:auto`: which kernel of ours is quickest for an array, by its bytes and the number of ranks.

A kernel takes what it takes for nothing, and the time that its wire carries what it sends: so
packets are for small arrays, and what sends least is for large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from cudareduce.backend import Launch
from cudareduce.problem.dtypes import DTYPES
from cudareduce.results.record import Record
from cudareduce.several.engines import Code, Peer, Stage
from cudareduce.several.exchange import AUTO, MOST_MAIL


@dataclass(frozen=True, slots=True)
class Cost:
    """What a kernel takes: `floor_us` for nothing, and of an array's bytes so many times over a
    link that carries `gb_s`, by the number of ranks."""

    floor_us: float
    gb_s: float
    wire: Callable[[int], float]


#: Floors and rates are those of two H200 with 18 NVLinks, 2^10 to 2^28 float32, of writes and of
#: reduce-scatter those of two H100; what more ranks send is arithmetic, and their floors are taken
#: to be the same. The floor of an all-reduce that writes is what lets it take over from two shots
#: at 3 MB: at 1 MiB these are quicker on both pairs, at 4 MiB it is.
COSTS: Mapping[str, Mapping[str, Cost]] = MappingProxyType({
    "all-reduce": {
        "packets": Cost(6.2, 290.0, lambda ranks: 2.0 * (ranks - 1)),  # half of it are numbers
        "one_shot": Cost(9.5, 300.0, lambda ranks: ranks - 1.0),
        "two_shot": Cost(9.8, 345.0, lambda ranks: 2 * (ranks - 1) / ranks),
        "writes": Cost(10.3, 366.0, lambda ranks: 2 * (ranks - 1) / ranks),
    },
    "reduce-scatter": {
        "scatter": Cost(11.0, 333.0, lambda ranks: (ranks - 1) / ranks),
        "writes": Cost(11.3, 366.0, lambda ranks: (ranks - 1) / ranks),
    },
    "reduce": {},
})  # fmt: skip
#: Bytes of a value in a packet.
_VALUE_BYTES = 4


def quickest(collective: str, known: Collection[str], ranks: int, n: int, size: int) -> str:
    """Which of some kernels is quickest for `n` elements of `size` bytes; one whose cost is not
    known is taken only where there is no other."""
    costs = COSTS[collective]

    def us(name: str) -> float:
        cost = costs[name]
        # a packet holds a value of up to 4 bytes, and two hold one of 8
        nbytes = n * max(size, _VALUE_BYTES) if name == "packets" else n * size
        return cost.floor_us + cost.wire(ranks) * nbytes / cost.gb_s / 1e3

    fitting = [name for name in known if name in costs]
    if n * size > MOST_MAIL:
        fitting = [name for name in fitting if name != "packets"]
    return min(fitting, key=us) if fitting else next(iter(known))


class Auto:
    """The engine that picks, at each size, one of some kernels by their short names."""

    name, mail = f"peer:{AUTO}", False
    version: str | None = None
    # which kernel it is depends on the size, and so nobody takes two of its times for one code's
    code = Code()

    def __init__(self, stage: Stage, peers: Mapping[str, Peer]) -> None:
        self.windows = stage.windows
        self._ranks, self._size = stage.comm.size, stage.reduction.dtype.size
        self._collective, self._peers = stage.collective, peers

    def why_not(self, n: int) -> None:
        """It takes any."""

    def enqueue(self, n: int, call: int) -> Launch:
        return self._taken(n).enqueue(n, call)

    def run(self, n: int, call: int, late: int) -> None:
        self._taken(n).run(n, call, late)

    def _taken(self, n: int) -> Peer:
        taken = quickest(self._collective, self._peers, self._ranks, n, self._size)
        return self._peers[taken]


def with_choice(record: Record, known: Collection[str]) -> Record:
    """A record that says which of some kernels was taken, if it is of what picks one."""
    if record.engine != Auto.name:
        return record
    size = DTYPES[record.dtype].size
    taken = quickest(record.kernel, known, record.ranks or 1, record.n, size)
    return replace(record, chosen=f"peer:{taken}")
