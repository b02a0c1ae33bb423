"""Compiled kernels as people and CI services read them: a table, why, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from cudareduce.compiled.compare import VERDICTS, UnitRow, resources_text
from cudareduce.compiled.store import Failed, Unit, unit_values
from cudareduce.report.ci import Finding
from cudareduce.report.section import Section

#: Not in the table: what is as it was, and what nothing can be said of.
_QUIET = ("SAME", "UNCERTAIN")


def fails(row: UnitRow, *, allow_gone: bool) -> bool:
    """Whether a row alone makes a check fail."""
    return row.verdict in ("BROKEN", "WORSE") or (row.verdict == "GONE" and not allow_gone)


def compiled_section(rows: Sequence[UnitRow], title: str, notes: Sequence[str]) -> Section:
    """What is not the same, worst first, in one line what one cause is behind; why all are
    UNCERTAIN is told in the notes."""
    counts = Counter(row.verdict for row in rows)
    told = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    table, reasons = [], []
    for group in _stories([row for row in rows if row.verdict not in _QUIET]):
        first, what = group[0], _what(group)
        units = [row.unit for row in group if isinstance(row.unit, Unit)]
        most = max((unit.resources for unit in units), key=lambda r: r.registers, default=None)
        table.append((first.verdict, first.unit.kernel, what, resources_text(most)))
        if first.text:
            reasons.append(f"{first.verdict}: {first.unit.kernel}{_where(group)}: {first.text}")
    header = ("verdict", "kernel", "what", "takes at most")
    summary = f"{len(rows)} compared: {told or 'nothing'}"
    return Section(title, header, tuple(table), (summary, *reasons, *notes), 4)


def compiled_findings(rows: Sequence[UnitRow], *, allow_gone: bool) -> list[Finding]:
    """One for each unit, but one for all units that an error kept from being compiled."""
    failed = [row for row in rows if isinstance(row.unit, Failed)]
    others = [[row] for row in _worst_first(rows) if not isinstance(row.unit, Failed)]
    return [
        Finding(
            row.unit.kernel, _what(group), row.verdict, row.text or "as it was",
            "failed" if fails(row, allow_gone=allow_gone)
            else "skipped" if row.verdict in ("GONE", "UNCERTAIN") else "passed",
        )
        for group in [*_stories(failed), *others] for row in group[:1]
    ]  # fmt: skip


def compiled_values(rows: Sequence[UnitRow]) -> list[dict[str, Any]]:
    """Units with their verdicts; `causes` are what these rest on, `reasons` all that differs."""
    return [
        unit_values(row.unit)
        | {"verdict": row.verdict, "causes": list(row.causes),
           "reasons": [*row.causes, *row.reasons]}
        for row in rows
    ]  # fmt: skip


def compiled_words(rows: Sequence[UnitRow]) -> dict[str, list[str]]:
    """Of each kernel what differs in its worst unit."""
    told = [group[0] for group in _stories([row for row in rows if row.text])]
    return {row.unit.kernel: [row.text] for row in reversed(told)}


def _stories(rows: Sequence[UnitRow]) -> list[list[UnitRow]]:
    """Rows of one kernel that rest on the same causes, however large, or differ without any; worst
    first."""
    stories: dict[tuple[object, ...], list[UnitRow]] = {}
    for row in _worst_first(rows):
        why = row.names or (row.causes if isinstance(row.unit, Failed) else ())
        stories.setdefault((row.verdict, row.unit.kernel, why), []).append(row)
    return list(stories.values())


def _worst_first(rows: Sequence[UnitRow]) -> list[UnitRow]:
    return sorted(rows, key=lambda row: VERDICTS.index(row.verdict))


def _what(rows: Sequence[UnitRow]) -> str:
    """What rows with one story are of; a stage is named where it is the only one."""
    return "; ".join(_parts(rows))


def _parts(rows: Sequence[UnitRow]) -> Iterator[str]:
    kinds = dict.fromkeys((row.unit.op, row.unit.dtype) for row in rows)
    (op, dtype), *others = kinds
    stages = {row.unit.stage for row in rows} - {"only"}
    stage = f" {stages.pop()}" if len(stages) == 1 else ""
    mine = [row.unit.arch for row in rows if (row.unit.op, row.unit.dtype) == (op, dtype)]
    yield f"{op} {dtype}{stage} sm_{','.join(map(str, dict.fromkeys(mine)))}"
    if others:
        yield f"{len(others)} more" if len(others) > 1 else " ".join(others[0])


def _where(rows: Sequence[UnitRow]) -> str:
    """Of which unit figures are, where those of others are different ones."""
    unit = rows[0].unit
    if len({row.text for row in rows}) == 1:
        return ""
    return f", {unit.op} {unit.dtype} on sm_{unit.arch}"
