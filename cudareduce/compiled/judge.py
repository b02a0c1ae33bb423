"""Figures of two sides held against each other: what costs time on any card, and what is told.

Pure. A launch shape that changed explains figures that go with it: with twice the items a thread
has twice the loads, with larger blocks fewer of them fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Literal

from cudareduce.compiled.opcodes import KINDS, counts_of, differences
from cudareduce.compiled.resources import resident_warps
from cudareduce.compiled.store import Unit
from cudareduce.compiled.traffic import Traffic

#: `verify`: it may cost nothing and be quicker, and still be wrong.
Weight = Literal["worse", "verify", "better", "told"]
#: Twice as many is a loop unrolled twice over, a division, or work that came in.
_TWICE = 2.0
#: Resources that travel to memory and back.
_COSTLY = ("stack_bytes", "spill_store_bytes", "spill_load_bytes")
#: So many opcodes of those that differ are told.
_TOLD_OPCODES = 5
#: More by this share is more than the loads of a few partials.
_SHARE, _GROWTH = 1.1, 1.25
#: Blocks so small that nothing but registers keeps them off an SM, and as large as fill it.
_SMALL_BLOCK = 64
#: The same of a ratio where the launch shape changed, and with it the share of loads and trees.
_RESHAPED = 1.5
#: And of the loads before the first use: a compiler halves them on one architecture alone.
_RELOADED = 4.0


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that differs: its name, what it is now and was, and whether that is worse."""

    name: str
    text: str
    weight: Weight


def unit_changes(old: Unit, new: Unit) -> Iterator[Change]:
    """What differs between two units, but for the sides that have no machine code to read."""
    reshaped = (old.block, old.items) != (new.block, new.items)
    for name in ("block", "items"):
        yield from _changed(name, getattr(old, name), getattr(new, name), "told")
    before, after = asdict(old.resources), asdict(new.resources)
    for name, value in before.items():
        costs: Weight = "worse" if after[name] > value else "better"
        what = "named_barriers" if name == "barriers" else name
        yield from _changed(what, value, after[name], costs if name in _COSTLY else "told")
    yield from _warps(old, new, reshaped)
    if old.code is not None and new.code is not None:
        yield from _code_changes(old, new, reshaped)


def _warps(old: Unit, new: Unit, reshaped: bool) -> Iterator[Change]:
    """Warps that an SM holds at once. Larger blocks leave more of an SM empty on some cards and
    none on others: then only registers count, as of small blocks, no more than the items that they
    hold, and where they leave half of the warps or fewer."""
    shown = [resident_warps(unit.resources, unit.block, unit.arch) for unit in (old, new)]
    if shown[0] is None or shown[1] is None:
        return
    weight: Weight = "worse" if shown[1] < shown[0] else "better"
    if reshaped:
        plain = [replace(unit.resources, shared_bytes=0) for unit in (old, new)]
        held = [resident_warps(used, _SMALL_BLOCK, old.arch) or 0 for used in plain]
        growth = max(1.0, new.items / old.items)
        weight = "worse" if held[1] * growth * _TWICE <= held[0] else "told"
    yield from _changed("resident_warps", shown[0], shown[1], weight)


def _code_changes(old: Unit, new: Unit, reshaped: bool) -> Iterator[Change]:
    assert old.code is not None
    assert new.code is not None
    before, after = counts_of(old.code.opcodes), counts_of(new.code.opcodes)
    more = max(1.0, new.items / old.items)
    for kind in ("all", *KINDS):
        was, now = before[kind], after[kind]
        name = {"all": "instructions", "local": "local_instructions", "double":
                "double_instructions"}.get(kind, kind)  # fmt: skip
        if kind == "barriers" and now < was and not reshaped:
            yield _fell(name, was, now)
            continue
        yield from _changed(name, was, now, _weight_of(kind, was, now, more, reshaped))
    share = [counts["wide_loads"] / max(counts["global_loads"], 1) for counts in (before, after)]
    lost = share[1] == 0 if reshaped else share[1] < share[0]
    if share[1] > share[0] or (share[0] and lost and after["global_loads"]):
        yield from _changed("share_of_wide_loads", _percent(share[0]), _percent(share[1]),
                            "better" if share[1] > share[0] else "worse")  # fmt: skip
    was, now = old.code.in_flight, new.code.in_flight
    most = _RELOADED if reshaped else _TWICE
    halved = now and now * most <= was * min(1.0, new.items / old.items)
    weight: Weight = "worse" if halved else "better" if now >= was * _TWICE * more else "told"
    yield from _changed("bytes_loaded_before_the_first_use", was, now, weight)
    moved = [*differences(old.code.opcodes, new.code.opcodes)]
    if moved:
        rest = f" and {len(moved) - _TOLD_OPCODES} more" if len(moved) > _TOLD_OPCODES else ""
        yield Change("opcodes", ", ".join(islice(moved, _TOLD_OPCODES)) + rest, "told")
    elif old.code.sha != new.code.sha:
        yield Change("operands", "the same opcodes in another order or on other operands", "told")


def _weight_of(kind: str, was: int, now: int, more: float, reshaped: bool) -> Weight:
    """What a count of instructions means."""
    match kind:
        case "all":
            return "worse" if now >= was * _TWICE * more else "told"
        case "local":
            return "worse" if now > was else "better"
        case "conversions" if reshaped:  # one divides to count the rounds of a loop
            return "told"
        case "double" | "conversions":
            return "worse" if now > was and now >= was * _TWICE * more else "told"
        case "barriers" | "atomics":
            return "worse" if now >= was * _TWICE * more and now >= was + 2 else "told"
        case "fences":
            lost, doubled = was and not now, now >= was * _TWICE * more and now >= was + 2
            return "worse" if lost or doubled else "told"
        case "calls":  # of what could not be put in its place: printf, an assertion, malloc
            return "worse" if now and not was and not reshaped else "told"
        case "sleeps":
            return "worse" if now > was else "told"
        case _:
            return "told"


def traffic_changes(old: Traffic, new: Traffic) -> Iterator[Change]:
    """What differs in what two texts ask of memory, for the same reduction."""
    reshaped = (old.block, old.items) != (new.block, new.items)
    ratio = _RESHAPED if reshaped else _SHARE
    yield from _grown("bytes_read", old.read_bytes, new.read_bytes, _SHARE)
    for name in ("sectors_a_request", "wavefronts_an_access"):
        yield from _grown(name, getattr(old, name), getattr(new, name), ratio)
    if new.unfenced and not old.unfenced:
        text = f"unfenced atomics or flags behind a store {new.unfenced}, was 0"
        yield Change("unfenced", text, "worse")
    if reshaped:
        if old.fenced_blocks and not new.fenced_blocks:
            yield from _changed("blocks_with_a_fence", old.fenced_blocks, 0, "worse")
        return
    counts = (
        ("bytes_written", old.written_bytes, new.written_bytes, _GROWTH),
        ("requests_of_warps", old.requests, new.requests, _GROWTH),
        ("sectors", old.sectors, new.sectors, _SHARE),
        ("accesses_to_shared_memory", old.accesses, new.accesses, _GROWTH),
        ("wavefronts_there", old.wavefronts, new.wavefronts, _GROWTH),
        ("atomics_of_threads", old.atomics, new.atomics, _GROWTH),
        ("shuffles_and_votes", old.collectives, new.collectives, _TWICE),
    )
    for name, was, now, limit in counts:
        yield from _grown(name, was, now, limit)
    if new.barriers < old.barriers:
        yield _fell("barriers_of_blocks", old.barriers, new.barriers)
    else:
        yield from _grown("barriers_of_blocks", old.barriers, new.barriers, _TWICE)
    fewer = new.fenced_blocks < old.fenced_blocks
    weight: Weight = "worse" if fewer else "told"
    yield from _changed("blocks_with_a_fence", old.fenced_blocks, new.fenced_blocks, weight)


def _grown(name: str, was: float, now: float, limit: float) -> Iterator[Change]:
    weight: Weight = "told"
    if now > was * limit:
        weight = "worse"
    elif now * limit < was:
        weight = "better"
    yield from _changed(name, was, now, weight)


def _fell(name: str, was: int, now: int) -> Change:
    """What a kernel may have had too many of, or just enough: only its answers tell."""
    text = f"{name.replace('_', ' ')} fell from {was} to {now}: run verify"
    return Change(name, text, "verify")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _changed(name: str, was: float | str, now: float | str, weight: Weight) -> Iterator[Change]:
    old, new = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in (was, now))
    if old != new:
        yield Change(name, f"{name.replace('_', ' ')} {new}, was {old}", weight)


def verdict_of(changes: Iterable[Change]) -> str:
    """What changes together come to: one that is worse decides, and nothing is better that may be
    wrong."""
    weights = {change.weight for change in changes}
    if "worse" in weights:
        return "WORSE"
    return "BETTER" if "better" in weights and "verify" not in weights else "CHANGED"
