"""Compare compiled kernels: one verdict per kernel, reduction and architecture. No I/O.

UNCERTAIN is the verdict on code of another compiler. Changes that follow from a changed launch
shape are not judged: twice the items per thread need twice the loads, and fewer large blocks fit an
SM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Literal

from cudareduce.compare.machine_code import (
    KINDS,
    Resources,
    counts_of,
    differences,
    resident_warps,
)
from cudareduce.compare.traffic import Traffic
from cudareduce.compare.units import Failed, Key, Side, Unit

#: `verify`: it may be faster, and wrong.
Weight = Literal["worse", "verify", "better", "neutral"]
#: A factor of two: a loop unrolled twice, a division, or added work.
_TWICE = 2.0
#: Resources in local memory.
_COSTLY = ("stack_bytes", "spill_store_bytes", "spill_load_bytes")
#: The most opcodes that are listed.
_MOST_OPCODES = 5
#: Growth beyond what loads of a few partial results explain.
_SHARE, _GROWTH = 1.1, 1.25
#: A block so small that only registers limit how many fit an SM.
_SMALL_BLOCK = 64
#: Limit of ratios if the launch shape changed.
_RESHAPED = 1.5
#: Limit of loads in flight then: compilers halve them on some architectures.
_RELOADED = 4.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that differs, with its old and new value, and whether that is worse."""

    name: str
    text: str
    weight: Weight


def unit_differences(old: Unit, new: Unit) -> Iterator[Difference]:
    """The differences between a unit compiled from two trees: launch shape, resources, resident
    warps and instruction counts."""
    reshaped = (old.block, old.items) != (new.block, new.items)
    for name in ("block", "items"):
        yield from _changed(name, getattr(old, name), getattr(new, name), "neutral")
    before, after = asdict(old.resources), asdict(new.resources)
    for name, value in before.items():
        costs: Weight = "worse" if after[name] > value else "better"
        what = "named_barriers" if name == "barriers" else name
        yield from _changed(what, value, after[name], costs if name in _COSTLY else "neutral")
    yield from _warps(old, new, reshaped)
    if old.code is not None and new.code is not None:
        yield from _code_differences(old, new, reshaped)


def _warps(old: Unit, new: Unit, reshaped: bool) -> Iterator[Difference]:
    """The change in resident warps. If the launch shape changed, only registers count: for small
    blocks, relative to the items they hold, and if half of the warps or fewer are left."""
    shown = [resident_warps(unit.resources, unit.block, unit.arch) for unit in (old, new)]
    if shown[0] is None or shown[1] is None:
        return
    weight: Weight = "worse" if shown[1] < shown[0] else "better"
    if reshaped:
        plain = [replace(unit.resources, shared_bytes=0) for unit in (old, new)]
        held = [resident_warps(used, _SMALL_BLOCK, old.arch) or 0 for used in plain]
        growth = max(1.0, new.items / old.items)
        weight = "worse" if held[1] * growth * _TWICE <= held[0] else "neutral"
    yield from _changed("resident_warps", shown[0], shown[1], weight)


def _code_differences(old: Unit, new: Unit, reshaped: bool) -> Iterator[Difference]:
    assert old.code is not None
    assert new.code is not None
    before, after = counts_of(old.code.opcodes), counts_of(new.code.opcodes)
    more = max(1.0, new.items / old.items)
    for kind in ("all", *KINDS):
        was, now = before[kind], after[kind]
        name = {"all": "instructions", "local": "local_instructions", "double":
                "double_instructions"}.get(kind, kind)  # fmt: skip
        if kind == "barriers" and now < was and not reshaped:
            yield _decrease(name, was, now)
            continue
        yield from _changed(name, was, now, _weight_of(kind, was, now, more, reshaped))
    share = [counts["wide_loads"] / max(counts["global_loads"], 1) for counts in (before, after)]
    lost = share[1] == 0 if reshaped else share[1] < share[0]
    if share[1] > share[0] or (share[0] and lost and after["global_loads"]):
        old_share, new_share = (f"{100 * each:.0f} %" for each in share)
        better: Weight = "better" if share[1] > share[0] else "worse"
        yield from _changed("share_of_wide_loads", old_share, new_share, better)
    was, now = old.code.in_flight, new.code.in_flight
    most = _RELOADED if reshaped else _TWICE
    halved = now and now * most <= was * min(1.0, new.items / old.items)
    weight: Weight = "worse" if halved else "better" if now >= was * _TWICE * more else "neutral"
    yield from _changed("bytes_loaded_before_the_first_use", was, now, weight)
    moved = [*differences(old.code.opcodes, new.code.opcodes)]
    if moved:
        rest = f" and {len(moved) - _MOST_OPCODES} more" if len(moved) > _MOST_OPCODES else ""
        yield Difference("opcodes", ", ".join(islice(moved, _MOST_OPCODES)) + rest, "neutral")
    elif old.code.sha != new.code.sha:
        yield Difference(
            "operands", "the same opcodes in another order or on other operands", "neutral"
        )


def _weight_of(kind: str, was: int, now: int, more: float, reshaped: bool) -> Weight:
    """Whether a changed number of instructions of one kind makes the kernel worse."""
    match kind:
        case "all":
            return "worse" if now >= was * _TWICE * more else "neutral"
        case "local":
            return "worse" if now > was else "better"
        case "conversions" if reshaped:  # one divides to count the rounds of a loop
            return "neutral"
        case "double" | "conversions":
            return "worse" if now > was and now >= was * _TWICE * more else "neutral"
        case "barriers" | "atomics" | "fences":
            lost = kind == "fences" and was and not now
            doubled = now >= was * _TWICE * more and now >= was + 2
            return "worse" if lost or doubled else "neutral"
        case "calls":  # of functions that are not inlined: printf, an assertion, malloc
            return "worse" if now and not was and not reshaped else "neutral"
        case "sleeps":
            return "worse" if now > was else "neutral"
        case _:
            return "neutral"


def traffic_differences(old: Traffic, new: Traffic) -> Iterator[Difference]:
    """The differences in memory traffic for the same reduction."""
    reshaped = (old.block, old.items) != (new.block, new.items)
    ratio = _RESHAPED if reshaped else _SHARE
    yield from _growth("bytes_read", old.read_bytes, new.read_bytes, _SHARE)
    for name in ("sectors_a_request", "wavefronts_an_access"):
        yield from _growth(name, getattr(old, name), getattr(new, name), ratio)
    if new.unfenced and not old.unfenced:
        text = f"unfenced atomics or flags after a store {new.unfenced}, was 0"
        yield Difference("unfenced", text, "worse")
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
        yield from _growth(name, was, now, limit)
    if new.barriers < old.barriers:
        yield _decrease("barriers_of_blocks", old.barriers, new.barriers)
    else:
        yield from _growth("barriers_of_blocks", old.barriers, new.barriers, _TWICE)
    fewer = new.fenced_blocks < old.fenced_blocks
    weight: Weight = "worse" if fewer else "neutral"
    yield from _changed("blocks_with_a_fence", old.fenced_blocks, new.fenced_blocks, weight)


def _growth(name: str, was: float, now: float, limit: float) -> Iterator[Difference]:
    weight: Weight = "neutral"
    if now > was * limit:
        weight = "worse"
    elif now * limit < was:
        weight = "better"
    yield from _changed(name, was, now, weight)


def _decrease(name: str, was: int, now: int) -> Difference:
    """A smaller number of operations that the result may depend on, such as barriers. Only `verify`
    shows whether the kernel is still right."""
    text = f"{name.replace('_', ' ')} fell from {was} to {now}: run verify"
    return Difference(name, text, "verify")


def _changed(name: str, was: float | str, now: float | str, weight: Weight) -> Iterator[Difference]:
    old, new = (f"{value:.4g}" if isinstance(value, float) else str(value) for value in (was, now))
    if old != new:
        yield Difference(name, f"{name.replace('_', ' ')} {new}, was {old}", weight)


#: What each verdict means, and whether it fails the command, from worst to best.
MEANINGS = {
    "BROKEN": ("does not compile, or breaks a rule that needs no baseline", "yes"),
    "WORSE": ("one figure that costs time on any card is worse", "yes"),
    "GONE": ("the kernel is only in the baseline", "unless `--allow-gone`"),
    "UNCERTAIN": (
        "the baseline is of another nvcc or other flags; only rules and memory accesses are "
        "checked", "no",
    ),
    "CHANGED": ("the machine code differs, and no figure is clearly worse or better", "no"),
    "NEW": ("the kernel is not in the baseline", "no"),
    "RENAMED": ("identical machine code under another name", "no"),
    "BETTER": ("the machine code differs, and one figure is better", "no"),
    "SAME": ("identical machine code and launch", "no"),
}  # fmt: skip
VERDICTS = tuple(MEANINGS)


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One comparison. `causes` decide the verdict: broken rules or worse figures, `names` without
    their values; `reasons` are other differences."""

    old: Unit | None
    new: Unit | Failed | None
    verdict: str
    reasons: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def unit(self) -> Unit | Failed:
        """The new unit if there is one, else the old one."""
        compiled = self.new or self.old
        assert compiled is not None
        return compiled

    @property
    def text(self) -> str:
        """The causes of the verdict, then other differences."""
        causes, reasons = "; ".join(self.causes), "; ".join(self.reasons)
        return f"{causes} (also: {reasons})" if causes and reasons else causes or reasons


def compare_units(old: Side, new: Side, other_compiler: str | None = None) -> list[UnitRow]:
    """One row per unit of either side. `other_compiler` says why machine code cannot be
    compared."""
    before = {unit.key: unit for unit in old.units}
    known = {(each.kernel, each.op, each.dtype): each for each in old.traffic}
    traffic = {
        key: list(traffic_differences(known[key], each))
        for each in new.traffic if (key := (each.kernel, each.op, each.dtype)) in known
    }  # fmt: skip
    rows = []
    for failed in new.failed:
        causes = (f"does not compile: {failed.error}",)
        rows.append(UnitRow(before.pop(failed.key, None), failed, "BROKEN", (), causes))
    for unit in new.units:
        was = before.pop(unit.key, None)
        accesses = traffic.get((unit.kernel, unit.op, unit.dtype), [])
        rules = tuple(new.broken.get(unit.key, ()))
        rows.append(_row(was, unit, accesses, rules, other_compiler))
    return _pair_renamed(rows, list(before.values()))


def _row(
    old: Unit | None, new: Unit, accesses: Sequence[Difference], rules: tuple[str, ...],
    other_compiler: str | None,
) -> UnitRow:  # fmt: skip
    """The verdict on one unit. Changes of memory accesses come first; identical code has no
    changes."""
    changes: list[Difference] = []
    if old and other_compiler:
        changes = [change for change in accesses if change.weight == "worse"]
    elif old and not old.same_as(new):
        changes = [*accesses, *unit_differences(old, new)]
    worse = [change for change in changes if change.weight == "worse"]
    others = sorted(
        (change for change in changes if change.weight != "worse"),
        key=lambda change: change.weight != "verify",
    )
    reasons = tuple(change.text for change in others)
    causes = (*rules, *(change.text for change in worse))
    names = (*rules, *(change.name for change in worse))
    if rules:
        return UnitRow(old, new, "BROKEN", reasons, causes, names)
    if old is None:
        return UnitRow(None, new, "NEW")
    if other_compiler and not worse:
        return UnitRow(old, new, "UNCERTAIN", (other_compiler,))
    if not changes and old.same_as(new):
        return UnitRow(old, new, "SAME")
    if not changes:
        reasons = ("the same instructions in another cubin",)
    return UnitRow(old, new, verdict_of(changes), reasons, causes, names)


def verdict_of(changes: Iterable[Difference]) -> str:
    """The verdict on changes: WORSE if one is worse, BETTER if one is better and none needs
    `verify`, else CHANGED."""
    weights = {change.weight for change in changes}
    if "worse" in weights:
        return "WORSE"
    return "BETTER" if "better" in weights and "verify" not in weights else "CHANGED"


def _pair_renamed(rows: Sequence[UnitRow], gone: Sequence[Unit]) -> list[UnitRow]:
    """Add a GONE row for each unit that only the baseline has. A NEW unit with the machine code of
    one of them is RENAMED instead."""
    by_code = {unit.code_key: unit for unit in gone if unit.code}
    paired: list[UnitRow] = []
    renamed: set[Key] = set()
    for row in rows:
        if row.verdict == "NEW" and isinstance(row.new, Unit) and row.new.code:
            before = by_code.pop(row.new.code_key, None)
            if before is not None:
                renamed.add(before.key)
                row = UnitRow(before, row.new, "RENAMED", (f"was {before.kernel}",))
        paired.append(row)
    why = ("it is not compiled any more",)
    return [*paired, *(UnitRow(u, None, "GONE", why) for u in gone if u.key not in renamed)]


def resources_text(used: Resources | None) -> str:
    if used is None:
        return ""
    spills = f", {used.spill_bytes} B spilled" if used.spill_bytes else ""
    return f"{used.registers} registers, {used.shared_bytes} B shared{spills}"
