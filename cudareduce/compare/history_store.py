"""The folder of a history: one JSON-lines file per kind of machine, one run per line.

A file is only appended to, under a lock and in one write, so that concurrent jobs do not corrupt
it, and git merges it line by line.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cudareduce.compare.baseline import STRICT
from cudareduce.errors import UsageError
from cudareduce.machine import DeviceInfo
from cudareduce.results.record import Record, Run
from cudareduce.results.store import Unfit, known_fields, parse

#: Incremented when a field is removed or changes its meaning; a new field does not increment it.
SCHEMA = 1
#: The required fields of a record, and the optional ones that a history uses.
_ALWAYS = tuple(f.name for f in fields(Record) if f.default is MISSING and f.name != "reason")
_FIGURES = (
    "time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s", "sm_mhz", "memory_mhz",
    "source_sha", "cubin_sha", "context", "offset", "aligned_n", "sms", "chosen", "map", "version",
    "source", "way", "chunk_bytes", "ranks", "engine", "busbw_gb_s", "pct_link", "skew_us",
)  # fmt: skip
#: Plausible range of a time in us or a rate in GB/s.
_LEAST, _MOST = 1e-9, 1e15


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored run with its timed records; `git` is the revision, None if unknown."""

    created: datetime
    version: str
    git: str | None
    device: DeviceInfo
    flush_bytes_read: int | None
    records: tuple[Record, ...]

    @property
    def revision(self) -> str:
        """The revision, else the version of the tool."""
        return self.git or f"version {self.version}"


def line_of(run: Run) -> str:
    """A run as one line of JSON, including the newline."""
    tool = run.tool
    values = {
        "schema": SCHEMA, "created": run.created, "version": tool.get("version"),
        "git": tool.get("git"), "device": known_fields(asdict(run.device)),
        "flush_bytes_read": run.protocol.get("flush_bytes_read"),
        "records": [
            known_fields({name: getattr(record, name) for name in (*_ALWAYS, *_FIGURES)})
            for record in run.records if record.time_us is not None and record.verdict == "pass"
        ],
    }  # fmt: skip
    return json.dumps(values, allow_nan=False, separators=(",", ":")) + "\n"


def entry_of(line: str) -> Entry:
    """Parse a line; raises Unfit with the reason if it is not a run."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise Unfit("is not JSON, or is cut short") from None
    if type(data) is not dict or type(data.get("records")) is not list:
        raise Unfit("is not a run of cudareduce")
    if data.get("schema") != SCHEMA:
        raise Unfit(f"does not have schema {SCHEMA}, the one this version reads")
    flush = data.get("flush_bytes_read")
    for name, value, kind in (
        ("version", data.get("version"), str), ("git", data.get("git"), str),
        ("flush_bytes_read", flush, int),
    ):  # fmt: skip
        if value is not None and type(value) is not kind:
            raise Unfit(f"has a {name} of another type")
    device = parse(DeviceInfo, data.get("device"))
    records = tuple(_record(values) for values in data["records"])
    try:
        created = moment(data["created"])
    except (KeyError, TypeError, ValueError):
        raise Unfit("has no date") from None
    return Entry(created, data.get("version") or "", data.get("git"), device, flush, records)


def _record(values: Any) -> Record:
    record = parse(Record, {"reason": ""} | values if type(values) is dict else values)
    ceiling = 1.0 if record.bound_gb_s is None else record.bound_gb_s
    if not all(_LEAST < figure < _MOST for figure in (record.time_us or 0.0, ceiling)):
        raise Unfit(f"has an impossible time or ceiling for {record.kernel}")
    if record.n < 0 or record.rows < 0:
        raise Unfit(f"has a negative size for {record.kernel}")
    return record


def moment(text: str) -> datetime:
    """Parse an ISO 8601 time, in UTC unless it has a zone. Raises ValueError."""
    parsed = datetime.fromisoformat(text)
    try:
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text} is outside of years 1 to 9999") from None


_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class History:
    """The runs of each kind of machine, by file name and in order of time, and a message for each
    line that was skipped."""

    runs: Mapping[str, tuple[Entry, ...]]
    omitted: tuple[str, ...]


def file_name(run: Run) -> str:
    """The name of the file that stores a run, from machine and protocol. Cards of one model share a
    file."""
    device = asdict(run.device)
    kinds = [str(device[field]) for field in STRICT] + [str(run.protocol.get("flush_bytes_read"))]
    kind = hashlib.sha256("\n".join(kinds).encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", run.device.name.lower()).strip("-")[:60]
    return f"{name}-{kind}{_SUFFIX}"


def append(run: Run, folder: Path) -> tuple[Path, bool]:
    """Add a run to a folder, which is created if missing. Returns the file and whether the run is
    new there. Raises UsageError if the file cannot be written."""
    path, line = folder / file_name(run), line_of(run).encode()
    try:
        entry_of(line.decode())
    except Unfit as error:
        raise UsageError(f"this run {error}: nothing is added to {folder}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            content = file.read()
            if line in content.splitlines(keepends=True):
                return path, False
            torn = bool(content) and not content.endswith(b"\n")  # its writer was killed
            file.write(b"\n" * torn + line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another folder") from None
    return path, True


def files(folder: Path) -> list[Path]:
    """The files of a history; none if the folder does not exist."""
    return [path for path in sorted(folder.glob(f"*{_SUFFIX}")) if path.is_file()]


def read(folder: Path) -> History:
    """Load a history. Raises UsageError if it cannot be read or has no runs."""
    entries: dict[str, tuple[Entry, ...]] = {}
    omitted: list[str] = []
    try:
        for path in files(folder):
            entries[path.name], unfit = _entries(path)
            omitted += unfit
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}; name another folder") from None
    if any(entries.values()):
        return History(entries, tuple(omitted))
    if omitted:
        raise UsageError(f"{omitted[0]}: remove it, {folder} has no other run")
    raise UsageError(
        f"there is no history in {folder}: make one with cudareduce history add RESULT.json "
        f"--into {folder}"
    )


def _entries(path: Path) -> tuple[tuple[Entry, ...], list[str]]:
    """The runs in a file in order of time, and a message for each line that is not a run."""
    entries, omitted = [], []
    seen = set[bytes]()
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip() or line in seen:  # a union merge may duplicate lines
            continue
        seen.add(line)
        try:
            entries.append(entry_of(line.decode()))
        except UnicodeDecodeError:
            omitted.append(f"{path}:{number}: the line is not UTF-8")
        except Unfit as error:
            omitted.append(f"{path}:{number}: the line {error}")
    return tuple(sorted(entries, key=lambda entry: entry.created)), omitted
