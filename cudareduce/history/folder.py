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
from dataclasses import asdict, dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.fingerprint import STRICT
from cudareduce.history.entries import Entry, entry_of, line_of
from cudareduce.results.record import Run
from cudareduce.results.store import Unfit

_ENDING = ".jsonl"


@dataclass(frozen=True, slots=True)
class History:
    """The runs of each kind of machine, by the names of its files, in the order of time; and the
    lines that hold none, each with its place and why."""

    runs: Mapping[str, tuple[Entry, ...]]
    left_out: tuple[str, ...]


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


def files(folder: Path) -> list[Path]:
    """The files of a history, none where there is no folder."""
    return [path for path in sorted(folder.glob(f"*{_ENDING}")) if path.is_file()]


def read(folder: Path) -> History:
    """What a folder holds. One that cannot be read is a UsageError, and so is one without runs."""
    found: dict[str, tuple[Entry, ...]] = {}
    left_out: list[str] = []
    try:
        for path in files(folder):
            found[path.name], unfit = _entries(path)
            left_out += unfit
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}; name another folder") from None
    if any(found.values()):
        return History(found, tuple(left_out))
    if left_out:
        raise UsageError(f"{left_out[0]}: take it out, there is no other run in {folder}")
    raise UsageError(
        f"there is no history in {folder}: make one with cudareduce history add RESULT.json "
        f"--into {folder}"
    )


def _entries(path: Path) -> tuple[tuple[Entry, ...], list[str]]:
    """The runs of a file, and the lines that hold none."""
    entries, left_out = [], []
    seen = set[bytes]()
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip() or line in seen:  # git's union of two branches may hold a line twice
            continue
        seen.add(line)
        try:
            entries.append(entry_of(line.decode()))
        except UnicodeDecodeError:
            left_out.append(f"{path}:{number}: the line is not UTF-8")
        except Unfit as error:
            left_out.append(f"{path}:{number}: the line {error}")
    return tuple(sorted(entries, key=lambda entry: entry.created)), left_out
