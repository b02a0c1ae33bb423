"""The store of a fleet: one SQLite file, which many may read and one at a time writes.

A cell is a kernel on a problem, measured in one way, of one text: what cards are compared by. Runs
are kept once, whatever files they lie in; `files` knows which bytes were seen.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.gate.baseline import IDENTITY
from cudareduce.machine.device import DeviceInfo
from cudareduce.results.record import Record
from cudareduce.results.store import Unfit, is_missing, json_of, values_of

#: Raised when a column changes its meaning or goes.
SCHEMA = 1
#: What SQLite files of this program bear: "cudf", for a fleet of cudareduce.
_APPLICATION = 0x63756466
#: Seconds that another one who writes is waited for.
_PATIENCE_S = 5.0

_WHAT = (*IDENTITY, "backend", "scope", "source_sha", "version", "chosen")
_FIGURES = (
    "time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s", "sm_mhz", "memory_mhz",
    "power_w", "temperature_c", "event_reasons",
)  # fmt: skip
#: What of a record makes its cell, but for the flush, and what it measured.
WHAT, FIGURES = attrgetter(*_WHAT), attrgetter(*_FIGURES)
_TABLES = {
    "runs": "CREATE TABLE runs (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, "
            "created TEXT NOT NULL, card TEXT NOT NULL, device TEXT NOT NULL)",
    "files": "CREATE TABLE files (sha TEXT PRIMARY KEY, run INTEGER NOT NULL, path TEXT NOT NULL)",
    "cells": f"CREATE TABLE cells (id INTEGER PRIMARY KEY, {', '.join(_WHAT)}, flush_bytes_read)",
    "times": f"CREATE TABLE times (run INTEGER NOT NULL, cell INTEGER NOT NULL, "
             f"{', '.join(_FIGURES)})",
}  # fmt: skip
#: Numbers that are none, in what another hand has written.
_UNFIT = " OR ".join(
    ["typeof(time_us) <> 'real'", "NOT time_us BETWEEN 1e-9 AND 1e15",
     "typeof(event_reasons) NOT IN ('text', 'null')"]
    + [f"typeof({name}) NOT IN ('real', 'null') OR abs({name}) > 1e15"
       for name in ("sm_mhz", "memory_mhz", "power_w", "temperature_c")]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timed:
    """A record as it is stored: what makes its cell, and what it measured."""

    what: tuple[Any, ...]
    figures: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """A run that is to be stored: the SHA-256 of its file and of itself, where it lay, when it was
    `created` (ISO 8601, UTC), the UUID of its card, its device as JSON, and its times."""

    sha: str
    digest: str
    path: str
    created: str
    card: str
    device: str
    times: tuple[Timed, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """What cards are compared by: a record without figures, and how much was read to displace the
    cache."""

    record: Record
    flush_bytes_read: int | None


@dataclass(frozen=True, slots=True)
class Time:
    """What one run says of one cell; both by their numbers."""

    run: int
    cell: int
    time_us: float
    sm_mhz: float | None
    memory_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    event_reasons: str | None


@dataclass(frozen=True, slots=True)
class Held:
    """What a store holds: the devices of runs and the cells, by their numbers, and times from the
    oldest to the newest."""

    devices: Mapping[int, DeviceInfo]
    cells: Mapping[int, Cell]
    times: tuple[Time, ...]


def seen(path: Path) -> frozenset[str]:
    """The SHA-256 of the files that were taken in; none where there is no store yet. One that
    cannot be used is a UsageError."""
    if is_missing(path) or _is_empty(path):
        return frozenset()
    with _opened(path, _mode(path)) as store:
        return frozenset(sha for (sha,) in store.execute("SELECT sha FROM files"))


def add(path: Path, runs: Iterable[Taken]) -> int:
    """Store runs, all or none; how many were not held before. The store is made if it is not there.
    One that cannot be written is a UsageError."""
    with _opened(path, "rwc") as store:
        number = "SELECT count(*) FROM runs"
        [before] = store.execute(number).fetchone()
        cells = {tuple(what): k for k, *what in store.execute("SELECT * FROM cells")}
        for run in runs:
            _add(store, run, cells)
        [after] = store.execute(number).fetchone()
    return int(after - before)


def _add(store: sqlite3.Connection, run: Taken, cells: dict[tuple[Any, ...], int]) -> None:
    """One run; `cells` are those that the store knows by now."""
    added = store.execute(
        "INSERT OR IGNORE INTO runs VALUES (NULL, ?, ?, ?, ?)",
        (run.digest, run.created, run.card, run.device),
    )
    [number] = store.execute("SELECT id FROM runs WHERE digest = ?", (run.digest,)).fetchone()
    store.execute("INSERT OR IGNORE INTO files VALUES (?, ?, ?)", (run.sha, number, run.path))
    if not added.rowcount:
        return
    for what in (one.what for one in run.times if one.what not in cells):
        places = ", ".join("?" * len(what))
        made = store.execute(f"INSERT INTO cells VALUES (NULL, {places})", what)
        assert made.lastrowid is not None
        cells[what] = made.lastrowid
    store.executemany(
        f"INSERT INTO times VALUES ({', '.join('?' * (2 + len(_FIGURES)))})",
        ((number, cells[one.what], *one.figures) for one in run.times),
    )


def read(path: Path) -> Held:
    """What a store holds. One that is missing, empty, damaged or of another program is a
    UsageError."""
    make = f"cudareduce gather DIR --into {path}"
    if is_missing(path):
        raise UsageError(f"there is no {path}: make it with {make}")
    if _is_empty(path):
        raise UsageError(f"{path} holds no runs: {make}")
    with _opened(path, _mode(path)) as store:
        try:
            held = _held(path, store)
        except Unfit as error:
            raise UsageError(f"{path} is damaged, {error}: delete it and gather anew") from None
    if not held.times:
        raise UsageError(f"{path} holds no runs: {make}")
    return held


def _held(path: Path, store: sqlite3.Connection) -> Held:
    if store.execute(f"SELECT 1 FROM times WHERE {_UNFIT} LIMIT 1").fetchone():
        raise Unfit("it holds what is not a time")
    found = store.execute("SELECT id, device FROM runs ORDER BY created, id")
    devices = {number: _device(path, text) for number, text in found}
    cells = {number: _cell(what) for number, *what in store.execute("SELECT * FROM cells")}
    order = {number: k for k, number in enumerate(devices)}
    found = store.execute(
        "SELECT run, cell, time_us, sm_mhz, memory_mhz, power_w, temperature_c, event_reasons "
        "FROM times"
    )
    times = [Time(*row) for row in found]
    if not all(time.run in order and time.cell in cells for time in times):
        raise Unfit("it holds a time of no run")
    times.sort(key=lambda time: order[time.run])
    return Held(devices, cells, tuple(times))


def _device(path: Path, text: Any) -> DeviceInfo:
    try:
        told = json_of(path, str(text).encode())
    except UsageError:
        raise Unfit("it holds a device that is not JSON") from None
    device = DeviceInfo(*values_of(DeviceInfo, told))
    if not device.uuid:
        raise Unfit("it holds a run of no card")
    return device


def _cell(what: list[Any]) -> Cell:
    *values, flush = what
    told = dict(zip(_WHAT, values, strict=True))
    plain = {"grid": None, "passes": None, "verdict": "pass", "reason": ""}
    record = Record(*values_of(Record, plain | {k: v for k, v in told.items() if v is not None}))
    if type(flush) not in (int, type(None)) or record.n < 0 or record.rows < 0:
        raise Unfit("it holds a size that is none")
    return Cell(record, flush)


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _mode(path: Path) -> str:
    """How to read: what was killed as it wrote leaves a journal, which only a writer can undo."""
    return "rw" if os.access(path, os.W_OK) else "ro"


@contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """A store, in one transaction, which what is raised inside takes back; `mode` as SQLite has it:
    `ro`, `rw` or, where it is made if it is not there, `rwc`. Whatever goes wrong is a
    UsageError."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file for the store")
    try:
        store = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_PATIENCE_S,
            isolation_level=None,
        )  # fmt: skip
    except sqlite3.Error as error:
        raise UsageError(_why(path, error)) from None
    try:
        store.execute("BEGIN IMMEDIATE" if mode == "rwc" else "BEGIN")
        if mode == "rwc" and not store.execute("SELECT 1 FROM sqlite_master").fetchone():
            _make(path, store)
        _check(path, store)
        yield store
        store.execute("COMMIT")
    except sqlite3.Error as error:
        raise UsageError(_why(path, error)) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is damaged: delete it and gather anew") from None
    finally:
        store.close()  # which takes back what was not committed


def _make(path: Path, store: sqlite3.Connection) -> None:
    if _pragma(store, "application_id") or _pragma(store, "user_version"):
        raise UsageError(f"{path} is a store of another program: name another file")
    store.execute(f"PRAGMA application_id = {_APPLICATION}")
    store.execute(f"PRAGMA user_version = {SCHEMA}")
    for told in _TABLES.values():
        store.execute(told)


def _check(path: Path, store: sqlite3.Connection) -> None:
    """Raise UsageError unless these are the very tables that this version makes: views and triggers
    of another hand might do anything."""
    if _pragma(store, "application_id") != _APPLICATION:
        raise UsageError(f"{path} is a store of another program: name another file")
    schema = _pragma(store, "user_version")
    if schema != SCHEMA:
        raise UsageError(
            f"{path} has schema {schema}, this version reads {SCHEMA}: gather into another file"
        )
    told = {sql for (sql,) in store.execute("SELECT sql FROM sqlite_master") if sql is not None}
    if told != set(_TABLES.values()):
        raise UsageError(f"{path} is damaged, its tables are not ours: delete it and gather anew")


def _pragma(store: sqlite3.Connection, name: str) -> int:
    [value] = store.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _why(path: Path, error: sqlite3.Error) -> str:
    """What SQLite says, and what to do."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{path} is in use by another program: run again when that has ended"
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return f"cannot write {path}: it is read-only; choose another place"
    if name.startswith("SQLITE_CANTOPEN"):
        return f"cannot open {path}, or write beside it: permission denied; choose another place"
    if name.startswith("SQLITE_NOTADB"):
        return f"{path} is not a store of cudareduce: name another file"
    if name.startswith("SQLITE_FULL"):
        return f"cannot write {path}: the disk is full; make room, or choose another place"
    return f"{path} is damaged or cannot be read, {error}: delete it and gather anew"
