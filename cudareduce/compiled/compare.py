"""Compiled kernels against those of another time or tree: one verdict for each kernel, reduction
and architecture. Pure. UNCERTAIN is what another compiler made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cudareduce.compiled.judge import Change, traffic_changes, unit_changes, verdict_of
from cudareduce.compiled.resources import Resources
from cudareduce.compiled.store import Failed, Key, Unit
from cudareduce.compiled.traffic import Traffic

#: From worst to best.
VERDICTS = (
    "BROKEN", "WORSE", "GONE", "UNCERTAIN", "CHANGED", "NEW", "RENAMED", "BETTER", "SAME",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One comparison: `causes` are what the verdict rests on, rules broken or figures that are
    worse; `reasons` what differs besides."""

    old: Unit | None
    new: Unit | Failed | None
    verdict: str
    reasons: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the figures among the causes, whatever they come to

    @property
    def unit(self) -> Unit | Failed:
        """The side that says what was compared."""
        found = self.new or self.old
        assert found is not None
        return found

    @property
    def text(self) -> str:
        """Causes first, set apart from what only differs."""
        besides = "; ".join(self.reasons)
        if not self.causes or not besides:
            return "; ".join(self.causes) or besides
        return f"{'; '.join(self.causes)} (besides: {besides})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one tree, or one time, gave: units, and what kernels ask of memory."""

    units: Sequence[Unit]
    traffic: Sequence[Traffic] = ()
    broken: Mapping[Key, Sequence[str]]
    failed: Sequence[Failed] = ()


def compare_units(old: Side, new: Side, other_compiler: str | None = None) -> list[UnitRow]:
    """A row for each unit on either side; `other_compiler` says why machine code of the two sides
    cannot be compared."""
    before = {unit.key: unit for unit in old.units}
    known = {(each.kernel, each.op, each.dtype): each for each in old.traffic}
    traffic = {
        key: list(traffic_changes(known[key], each))
        for each in new.traffic if (key := (each.kernel, each.op, each.dtype)) in known
    }  # fmt: skip
    rows = [
        UnitRow(
            before.pop(unit.key, None), unit, "BROKEN", (), (f"does not compile: {unit.error}",)
        )
        for unit in new.failed
    ]
    for unit in new.units:
        was = before.pop(unit.key, None)
        asked = traffic.get((unit.kernel, unit.op, unit.dtype), [])
        rules = tuple(new.broken.get(unit.key, ()))
        rows.append(_judged(was, unit, asked, rules, other_compiler))
    rows += [UnitRow(unit, None, "GONE", ("it is not compiled any more",)) for unit in
             before.values()]  # fmt: skip
    return _with_renamed(rows)


def _judged(
    old: Unit | None, new: Unit, asked: Sequence[Change], rules: tuple[str, ...], other: str | None
) -> UnitRow:
    changes = [] if old is None else _changes(old, new, asked, other)
    worse = [change for change in changes if change.weight == "worse"]
    besides = sorted(changes, key=lambda change: change.weight != "verify")
    told = tuple(change.text for change in besides if change.weight != "worse")
    causes = (*rules, *(change.text for change in worse))
    names = (*rules, *(change.name for change in worse))
    if rules:
        return UnitRow(old, new, "BROKEN", told, causes, names)
    if old is None:
        return UnitRow(None, new, "NEW")
    if other and not worse:
        return UnitRow(old, new, "UNCERTAIN", (other,))
    if not changes and old.same_as(new):
        return UnitRow(old, new, "SAME")
    told = told if changes else ("the same instructions, but not the same file of machine code",)
    return UnitRow(old, new, verdict_of(changes), told, causes, names)


def _changes(old: Unit, new: Unit, asked: Sequence[Change], other: str | None) -> list[Change]:
    """What differs, first what is asked of memory; of the same machine code, launched the same way,
    nothing does."""
    if other:
        return [change for change in asked if change.weight == "worse"]
    if old.same_as(new):
        return []
    return [*asked, *unit_changes(old, new)]


def _with_renamed(rows: Iterable[UnitRow]) -> list[UnitRow]:
    """What is gone and there again, instruction for instruction, under another name."""
    rows = list(rows)
    gone = {row.old.code_key: row for row in rows if row.verdict == "GONE" and row.old
            and row.old.code}  # fmt: skip
    found: list[UnitRow] = []
    taken: set[Key] = set()
    for row in rows:
        before = None
        if row.verdict == "NEW" and isinstance(row.new, Unit) and row.new.code:
            before = gone.pop(row.new.code_key, None)
        if before is None or before.old is None:
            found.append(row)
        else:
            taken.add(before.old.key)
            found.append(UnitRow(before.old, row.new, "RENAMED", (f"was {before.old.kernel}",)))
    return [row for row in found if row.verdict != "GONE" or row.unit.key not in taken]


def resources_text(used: Resources | None) -> str:
    """The figures of a unit in a few words; none of one that does not compile."""
    if used is None:
        return ""
    spills = f", {used.spill_bytes} B spilled" if used.spill_bytes else ""
    return f"{used.registers} registers, {used.shared_bytes} B shared{spills}"
