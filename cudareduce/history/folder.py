"""The folder of a history: a file for each kind of machine, a line for each run.

A file is only ever appended to, under a lock, with one write: jobs on one machine, or on one file
system, do not disturb each other, and what git merges are lines.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.fingerprint import STRICT
from cudareduce.history.entries import Entry, entry_of, line_of
from cudareduce.results.record import Run
from cudareduce.results.store import Unfit

_ENDING = ".jsonl"


def file_name(run: Run) -> str:
    """The file of a run's machine and protocol: other cards of the same model share it."""
    device = asdict(run.device)
    told = [str(device[field]) for field in STRICT] + [str(run.protocol.get("flush_bytes_read"))]
    kind = hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]
    name = re.sub(r"[^a-z0-9]+", "-", run.device.name.lower()).strip("-")[:60]
    return f"{name}-{kind}{_ENDING}"


def append(run: Run, folder: Path) -> tuple[Path, bool]:
    """Add a run: the file that holds it, and whether it has not held it before. A folder that is
    not there is made; one that cannot be written is a UsageError."""
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
            held = file.read()
            if line in held.splitlines(keepends=True):
                return path, False
            torn = bool(held) and not held.endswith(b"\n")  # by what was killed as it wrote
            file.write(b"\n" * torn + line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another folder") from None
    return path, True


def read(folder: Path) -> Mapping[str, tuple[Entry, ...]]:
    """The runs of each kind of machine, by the names of its files, in the order of time. A folder
    or a line that cannot be read is a UsageError, and so is a folder without runs."""
    found: dict[str, tuple[Entry, ...]] = {}
    try:
        for path in sorted(folder.glob(f"*{_ENDING}")):
            if path.is_file():
                found[path.name] = _entries(path)
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}; name another folder") from None
    if not any(found.values()):
        raise UsageError(
            f"there is no history in {folder}: make one with cudareduce history add RESULT.json "
            f"--into {folder}"
        )
    return found


def _entries(path: Path) -> tuple[Entry, ...]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: take it out of the history") from None
    entries = []
    seen = set[str]()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line in seen:  # git's union of two branches may hold a line twice
            continue
        seen.add(line)
        try:
            entries.append(entry_of(line))
        except Unfit as error:
            raise UsageError(f"{path}:{number}: the line {error}: take it out") from None
    return tuple(sorted(entries, key=lambda entry: entry.created))
