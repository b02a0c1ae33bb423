"""What is compared: when, from which revision and on which card each side was measured."""

from __future__ import annotations

from datetime import UTC, datetime

from cudareduce.gate.baseline import identity
from cudareduce.problem.sizes import counted
from cudareduce.results.record import Run


def side_text(words: str, run: Run) -> str:
    """One side in a line."""
    tool, device = run.tool, run.device
    parts = [_when(run.created), f"cudareduce {tool.get('version')}", device.name]
    if tool.get("git"):
        parts[1] += f" at {tool['git']}"
    if device.uuid:
        parts[2] += f" {device.uuid[: len('GPU-') + 8]}"
    if run.protocol.get("rounds"):
        parts.append(_rounds(run))
    if run.protocol.get("flush_bytes_read"):
        parts.append(f"flush of {_flush(run)}")
    return f"{words}: {', '.join(parts)}"


def _when(created: str) -> str:
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return created or "no date"


def _flush(run: Run) -> str:
    flushed = run.protocol["flush_bytes_read"]
    return f"{flushed / 2**20:g} MiB" if isinstance(flushed, int) else str(flushed)


def _rounds(run: Run) -> str:
    """The rounds that were asked for, and how many of them there are where a run was cut short."""
    asked = run.protocol["rounds"]
    there = {len(record.rounds_us) for record in run.records if record.time_us is not None}
    if not there or there == {asked}:
        return f"{counted(asked, 'round')}"
    least, most = min(there), max(there)
    return f"{least if least == most else f'{least} to {most}'} of {counted(asked, 'round')}"


def measured_otherwise(old: Run, new: Run) -> list[str]:
    """What two runs did differently, where both say what they did."""
    before, after = _ways(old), _ways(new)
    told = [
        f"{what} {before[what]}, now {after[what]}"
        for what in before if what in after and before[what] != after[what]
    ]  # fmt: skip
    return [f"measured otherwise: {'; '.join(told)}"] if told else []


def _ways(run: Run) -> dict[str, str]:
    """How a run measured, as far as it says so."""
    protocol = run.protocol
    ways = {
        "flush of": _flush(run) if protocol.get("flush_bytes_read") else None,
        "timing": protocol.get("timing"),
        "region": protocol.get("region"),
        "graphs": {True: "replayed", False: "none"}.get(protocol.get("graph", "")),
    }
    return {what: way for what, way in ways.items() if way}


def same_run(old: Run, new: Run) -> bool:
    """Whether both are one and the same measurement, whatever became of its date, its order or some
    of its records: no two measurements agree in every round of all that both hold."""
    before = {identity(record): record.rounds_us for record in old.records if record.rounds_us}
    both = [
        (before[key], record.rounds_us)
        for record in new.records if (key := identity(record)) in before and record.rounds_us
    ]  # fmt: skip
    return bool(both) and all(a == b for a, b in both)
