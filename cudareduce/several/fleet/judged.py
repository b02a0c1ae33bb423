"""Cards held against others of their model: pure.

A card's time in a cell is the median of its last three runs; how far off it is, that over the
median of all cards. Of the kernels on one problem the median counts: memory that has become slow
shows where arrays are large, a slow launch where they are small, and neither in the middle of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import expm1, log, log1p
from statistics import median
from typing import Any, Literal

from cudareduce.machine.device import Conditions, DeviceInfo
from cudareduce.results.record import Record
from cudareduce.several.fleet.outliers import Spread, spread
from cudareduce.several.fleet.state import set_otherwise, state_of, usual_settings
from cudareduce.several.fleet.store import Cell, Held, Time

Verdict = Literal["SLOW", "ONCE", "FINE", "FEW"]
#: Of fewer cards it cannot be told which is odd.
FEWEST = 8
#: What is less above the median is nobody's loss, however alike the others are.
THRESHOLD = 0.03
#: In how many fleets of equal cards any is called slow, for each model.
WRONG = 0.01
#: The runs of a card that count: what it was long ago is another question.
LAST = 3
#: A card is slow if so many of them say so.
_AGREE = 2
_ORDER: tuple[Verdict, ...] = ("SLOW", "ONCE", "FINE", "FEW")
#: What makes a model, besides its name; slices of a card differ in it.
_MODEL = ("cc", "sm_count", "l2_bytes", "bus_bits", "mig")


@dataclass(frozen=True, slots=True)
class Figure:
    """A card in a cell: the median of its last runs, that of the model's cards, of which there are
    so many, and the state of the GPU in these runs."""

    uuid: str
    cell: Cell
    runs: int
    time_us: float
    median_us: float
    cards: int
    state: Conditions
    throttled: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Group:
    """The kernels on one problem: a record that says which, how many cells and cards, and, if they
    are not too few, how those spread (as logarithms)."""

    record: Record
    cells: int
    cards: int
    spread: Spread | None

    @property
    def limit(self) -> float | None:
        """From how much above the median on a card is called slow, as a share."""
        return None if self.spread is None else max(THRESHOLD, expm1(self.spread.limit))


@dataclass(frozen=True, slots=True)
class Card:
    """A card and its verdict; `slower` is how far above the median it is, as a share, where that is
    most (`at`), both None if no other card ran the same. `otherwise` is what it has in another way
    than most of its model."""

    uuid: str
    verdict: Verdict
    runs: int
    slower: float | None
    at: Record | None
    device: DeviceInfo
    state: Conditions
    throttled: tuple[str, ...] | None
    otherwise: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """The cards of one model, the slow ones first, and its problems, those of most cards first."""

    name: str
    cards: tuple[Card, ...]
    groups: tuple[Group, ...]
    figures: tuple[Figure, ...]

    @property
    def judged(self) -> bool:
        """Whether there are enough cards to tell of any."""
        return any(group.spread for group in self.groups)


def judged(held: Held) -> list[Model]:
    """Every model in a store, the one with most cards first."""
    times: dict[tuple[Any, ...], list[Time]] = {}
    kinds = {k: _kind(device) for k, device in held.devices.items()}
    for time in held.times:
        times.setdefault(kinds[time.run], []).append(time)
    names = Counter(kind[0] for kind in times)
    found = [
        _model(f"{kind[0]}{_variant(kind) if names[kind[0]] > 1 else ''}", some, held)
        for kind, some in times.items()
    ]
    return sorted(found, key=lambda model: (-len(model.cards), model.name))


def _kind(device: DeviceInfo) -> tuple[Any, ...]:
    return (device.name, *(getattr(device, name) for name in _MODEL))


def _variant(kind: Sequence[Any]) -> str:
    """What tells it from others of its name, as far as that is known."""
    _, _, sms, _, bits, mig = kind
    told = [f"{sms} SMs"] * bool(sms) + [f"{bits} bits"] * bool(bits) + ["MIG"] * bool(mig)
    return f" with {', '.join(told)}" if told else ""


def _model(name: str, times: Sequence[Time], held: Held) -> Model:
    last = _last(times, held)
    middles = {cell: median(map(_time, cards.values())) for cell, cards in last.items()}
    problems: dict[tuple[Any, ...], list[int]] = {}
    for cell in last:
        problems.setdefault(_problem(held.cells[cell].record), []).append(cell)
    enough = sum(bool(_common(cells, last)) for cells in problems.values())
    looks = [_look(cells, last, middles, held, WRONG / max(1, enough))
             for cells in problems.values()]  # fmt: skip
    figures = tuple(_figures(last, middles, held))
    cards = sorted(
        _verdicts(times, last, looks, held),
        key=lambda c: (_ORDER.index(c.verdict), -(c.slower or 0.0)),
    )
    groups = sorted((look.group for look in looks), key=lambda g: (-g.cards, g.record.n))
    return Model(name, tuple(cards), tuple(groups), figures)


_Last = Mapping[int, Mapping[str, list[Time]]]


def _last(times: Sequence[Time], held: Held) -> _Last:
    """The last runs of each cell and card, of what came in the order of time."""
    found: dict[int, dict[str, list[Time]]] = {}
    for time in times:
        uuid = held.devices[time.run].uuid or ""
        found.setdefault(time.cell, {}).setdefault(uuid, []).append(time)
    return {cell: {uuid: some[-LAST:] for uuid, some in cards.items()}
            for cell, cards in found.items()}  # fmt: skip


def _problem(r: Record) -> tuple[Any, ...]:
    return (
        r.op, r.map, r.dtype, r.acc, r.n, r.rows, r.offset, r.timing, r.region, r.pattern,
        r.context, r.sms, r.source, r.way, r.chunk_bytes,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Look:
    """A group and what it says of its cards: how far off each is, as a logarithm, and whether that
    is apart from the others."""

    group: Group
    offs: Mapping[str, float]
    verdicts: Mapping[str, Verdict]


def _common(cells: Iterable[int], last: _Last, cards: int = FEWEST) -> list[int]:
    """Those that so many cards have."""
    return [cell for cell in cells if len(last[cell]) >= cards]


def _offs(cells: Iterable[int], last: _Last, middles: Mapping[int, float]) -> dict[str, float]:
    """How far above the median cards are in the middle of these cells."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        for uuid, some in last[cell].items():
            found.setdefault(uuid, []).append(log(_time(some) / middles[cell]))
    return {uuid: median(some) for uuid, some in found.items()}


def _time(some: Sequence[Time]) -> float:
    return median(one.time_us for one in some)


def _look(
    cells: Sequence[int], last: _Last, middles: Mapping[int, float], held: Held, wrong: float
) -> _Look:
    record, every = held.cells[cells[0]].record, _offs(_common(cells, last, 2), last, middles)
    verdicts: dict[str, Verdict] = dict.fromkeys(every, "FEW")
    offs = _offs(_common(cells, last), last, middles)
    if not offs:
        cards = {uuid for cell in cells for uuid in last[cell]}
        return _Look(Group(record, len(cells), len(cards), None), every, verdicts)
    middle = median(offs.values())
    offs = {uuid: off - middle for uuid, off in offs.items()}
    found = spread(list(offs.values()), wrong)
    for k, (uuid, off) in enumerate(offs.items()):
        verdicts[uuid] = "FINE"
        if k in found.apart and off > log1p(THRESHOLD):
            times = {cell: last[cell][uuid] for cell in cells if uuid in last[cell]}
            verdicts[uuid] = "SLOW" if _agreeing(times, middles) >= _AGREE else "ONCE"
    return _Look(Group(record, len(cells), len(offs), found), every | offs, verdicts)


def _agreeing(times: Mapping[int, Sequence[Time]], middles: Mapping[int, float]) -> int:
    """How many of a card's runs say for themselves that it is slow."""
    runs: dict[int, list[float]] = {}
    for cell, some in times.items():
        for one in some:
            runs.setdefault(one.run, []).append(log(one.time_us / middles[cell]))
    return sum(median(offs) > log1p(THRESHOLD) for offs in runs.values())


def _figures(last: _Last, middles: Mapping[int, float], held: Held) -> Iterator[Figure]:
    for cell, cards in last.items():
        for uuid, some in cards.items():
            yield Figure(
                uuid, held.cells[cell], len(some), _time(some), middles[cell], len(cards),
                *state_of(some),
            )  # fmt: skip


def _verdicts(
    times: Sequence[Time], last: _Last, looks: Sequence[_Look], held: Held
) -> Iterator[Card]:
    """Every card, as it was when it last ran."""
    runs: dict[str, dict[int, DeviceInfo]] = {}
    of_card: dict[str, list[Time]] = {}
    for time in times:
        device = held.devices[time.run]
        runs.setdefault(device.uuid or "", {})[time.run] = device
    for cards in last.values():
        for uuid, some in cards.items():
            of_card.setdefault(uuid, []).extend(some)
    newest = {uuid: list(some.values())[-1] for uuid, some in runs.items()}
    usual = usual_settings(newest.values())
    for uuid, device in newest.items():
        worst, slower, at = _worst(uuid, looks)
        yield Card(
            uuid, worst, len(runs[uuid]), slower, at, device, *state_of(of_card[uuid]),
            set_otherwise(device, usual),
        )  # fmt: skip


def _worst(uuid: str, looks: Iterable[_Look]) -> tuple[Verdict, float | None, Record | None]:
    """The worst verdict on a card, how much slower it is where that is most, and where."""
    found = [
        (-_ORDER.index(look.verdicts[uuid]), look.offs[uuid], look)
        for look in looks if uuid in look.offs
    ]  # fmt: skip
    if not found:
        return "FEW", None, None
    _, off, look = max(found, key=lambda one: one[:2])
    return look.verdicts[uuid], expm1(off), look.group.record
