"""A run as one line of JSON: where and when it was made, and what each kernel took."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from cudareduce.machine.device import DeviceInfo
from cudareduce.results.record import Record, Run
from cudareduce.results.store import Unfit, values_of

#: Raised when a field changes its meaning or goes; new fields do not raise it.
SCHEMA = 1
#: What a record has in any case, and what of the rest a history can use.
_ALWAYS = tuple(f.name for f in fields(Record) if f.default is MISSING and f.name != "reason")
_FIGURES = (
    "time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s", "sm_mhz", "memory_mhz",
    "source_sha", "cubin_sha", "context", "offset", "aligned_n", "sms", "chosen", "map", "version",
    "source", "way", "chunk_bytes", "ranks", "engine", "busbw_gb_s", "pct_link", "skew_us",
)  # fmt: skip
#: No measurement in microseconds or GB/s lies beyond these.
_LEAST, _MOST = 1e-9, 1e15


@dataclass(frozen=True, slots=True)
class Entry:
    """One run: when it was `created`, at which revision (`git`, None if unknown), on which card,
    and the records that have a time."""

    created: datetime
    version: str
    git: str | None
    device: DeviceInfo
    flush_bytes_read: int | None
    records: tuple[Record, ...]

    @property
    def revision(self) -> str:
        """The revision, or what is said in its place."""
        return self.git or f"version {self.version}"


def line_of(run: Run) -> str:
    """A run as a line, with its end."""
    tool = run.tool
    held = {
        "schema": SCHEMA, "created": run.created, "version": tool.get("version"),
        "git": tool.get("git"), "device": _told(asdict(run.device)),
        "flush_bytes_read": run.protocol.get("flush_bytes_read"),
        "records": [_slim(record) for record in run.records if _counts(record)],
    }  # fmt: skip
    return json.dumps(held, allow_nan=False, separators=(",", ":")) + "\n"


def _counts(record: Record) -> bool:
    return record.time_us is not None and record.verdict == "pass"


def _slim(record: Record) -> dict[str, Any]:
    return _told({name: getattr(record, name) for name in (*_ALWAYS, *_FIGURES)})


def _told(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of it, and finite."""
    return {
        key: value for key, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }  # fmt: skip


def entry_of(line: str) -> Entry:
    """A line as a run; what is wrong with one that is none is an Unfit, in words."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise Unfit("is not JSON, or is cut short") from None
    if type(data) is not dict or type(data.get("records")) is not list:
        raise Unfit("is no run of cudareduce")
    if data.get("schema") != SCHEMA:
        raise Unfit(f"has not the schema {SCHEMA} that this version reads")
    flush = data.get("flush_bytes_read")
    for name, value, kind in (
        ("version", data.get("version"), str), ("git", data.get("git"), str),
        ("flush_bytes_read", flush, int),
    ):  # fmt: skip
        if value is not None and type(value) is not kind:
            raise Unfit(f"has a {name} of another type")
    device = DeviceInfo(*values_of(DeviceInfo, data.get("device")))
    records = tuple(_record(values) for values in data["records"])
    return Entry(
        _moment(data.get("created")), data.get("version") or "", data.get("git"), device, flush,
        records,
    )  # fmt: skip


def _record(values: Any) -> Record:
    record = Record(*values_of(Record, {"reason": ""} | values if type(values) is dict else values))
    ceiling = 1.0 if record.bound_gb_s is None else record.bound_gb_s
    if not all(_LEAST < figure < _MOST for figure in (record.time_us or 0.0, ceiling)):
        raise Unfit(f"has a time or a ceiling of {record.kernel} that is none")
    if record.n < 0 or record.rows < 0:
        raise Unfit(f"has a size of {record.kernel} that is none")
    return record


def _moment(text: Any) -> datetime:
    try:
        return moment(text)
    except (TypeError, ValueError):
        raise Unfit("does not say when it was created") from None


def moment(text: str) -> datetime:
    """A point in time as ISO 8601 writes it; without a zone it is UTC. Raises ValueError."""
    found = datetime.fromisoformat(text)
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text} is before the first year, or behind the last") from None
