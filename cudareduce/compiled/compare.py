"""Compiled kernels against a baseline: pure, one verdict for each kernel and architecture.

A figure that differs is only told; WORSE is what costs time on any card: spills, stack, local
memory, fewer warps at once, a smaller share of wide loads. UNCERTAIN is what another compiler made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cudareduce.compiled.resources import Resources, resident_warps
from cudareduce.compiled.store import Failed, Key, Unit

#: From worst to best.
VERDICTS = ("BROKEN", "WORSE", "GONE", "UNCERTAIN", "CHANGED", "NEW", "BETTER", "SAME")


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One comparison; `reasons` are rules broken or figures that differ."""

    old: Unit | None
    new: Unit | Failed | None
    verdict: str
    reasons: tuple[str, ...] = ()

    @property
    def unit(self) -> Unit | Failed:
        """The side that says what was compared."""
        found = self.new or self.old
        assert found is not None
        return found


def compare_units(
    old: Sequence[Unit],
    new: Sequence[Unit],
    broken: Mapping[Key, Sequence[str]],
    failed: Sequence[Failed] = (),
    other_compiler: str | None = None,
) -> list[UnitRow]:
    """A row for each unit on either side; `broken` holds the rules that new ones break, and
    `other_compiler` says why figures of the two sides cannot be compared."""
    before = {unit.key: unit for unit in old}
    rows = [
        UnitRow(before.pop(unit.key, None), unit, "BROKEN", (f"does not compile: {unit.error}",))
        for unit in failed
    ]
    for unit in new:
        was = before.pop(unit.key, None)
        rules = tuple(broken.get(unit.key, ()))
        verdict, reasons = _judge(was, unit, other_compiler)
        if rules:
            verdict, reasons = "BROKEN", rules + (reasons if verdict != "UNCERTAIN" else ())
        rows.append(UnitRow(was, unit, verdict, reasons))
    return rows + [UnitRow(unit, None, "GONE", ("it is not compiled any more",)) for unit in
                   before.values()]  # fmt: skip


def _judge(old: Unit | None, new: Unit, other_compiler: str | None) -> tuple[str, tuple[str, ...]]:
    if old is None:
        return "NEW", ()
    if other_compiler:
        return "UNCERTAIN", (other_compiler,)
    if old.cubin_sha == new.cubin_sha:
        return "SAME", ()
    costs = [_costs(unit) for unit in (old, new)]
    known = [key for key in costs[0] if costs[0][key] is not None and costs[1][key] is not None]
    worse = any(costs[1][key] > costs[0][key] for key in known)  # type: ignore[operator]
    better = any(costs[1][key] < costs[0][key] for key in known)  # type: ignore[operator]
    reasons = tuple(_differences(old, new))
    if worse:
        return "WORSE", reasons
    if better:
        return "BETTER", reasons
    return ("CHANGED" if reasons else "SAME"), reasons


def _costs(unit: Unit) -> dict[str, float | None]:
    """What is better the smaller it is."""
    used, counts = unit.resources, unit.instructions
    warps = resident_warps(used, unit.block, unit.arch)
    return {
        "spills": used.spill_bytes,
        "stack": used.stack_bytes,
        "idle": None if warps is None else -warps,
        "local": counts["local"] if counts else None,
        "narrow": -counts["wide_loads"] / max(counts["global_loads"], 1) if counts else None,
    }


def _differences(old: Unit, new: Unit) -> list[str]:
    def figures(unit: Unit) -> dict[str, int | None]:
        found: dict[str, int | None] = dict(asdict(unit.resources))
        found |= {"block": unit.block, "items": unit.items}
        found["resident_warps"] = resident_warps(unit.resources, unit.block, unit.arch)
        if old.instructions is not None and new.instructions is not None:
            counts = unit.instructions or {}
            found |= {
                f"{kind} instructions" if kind in ("all", "local") else kind: counts.get(kind)
                for kind in old.instructions
            }
        return found

    before, after = figures(old), figures(new)
    return [
        f"{name.replace('_', ' ')} {after.get(name)}, was {value}"
        for name, value in before.items()
        if after.get(name) != value
    ]


def resources_text(used: Resources | None) -> str:
    """The figures of a unit in a few words; none of one that does not compile."""
    if used is None:
        return ""
    spills = f", {used.spill_bytes} B spilled" if used.spill_bytes else ""
    return f"{used.registers} registers, {used.shared_bytes} B shared{spills}"
