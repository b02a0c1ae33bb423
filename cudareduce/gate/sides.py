"""What is compared: when, from which revision and on which card each side was measured."""

from __future__ import annotations

from datetime import UTC, datetime

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
        parts.append(f"{run.protocol['rounds']} rounds")
    if run.protocol.get("flush_bytes_read"):
        parts.append(f"flush of {_flush(run)}")
    return f"{words}: {', '.join(parts)}"


def _when(created: str) -> str:
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return created or "no date"


def _flush(run: Run) -> str:
    flushed = run.protocol["flush_bytes_read"]
    return f"{flushed / 2**20:g} MiB" if isinstance(flushed, int) else str(flushed)


def measured_otherwise(old: Run, new: Run) -> list[str]:
    """What two runs did differently, where both say what they did."""
    if not all(run.protocol.get("flush_bytes_read") for run in (old, new)):
        return []
    before, after = _flush(old), _flush(new)
    return [f"measured otherwise: flush of {before}, now {after}"] if before != after else []


def same_run(old: Run, new: Run) -> bool:
    """Whether both are one and the same measurement."""
    return old.created == new.created and old.records == new.records
