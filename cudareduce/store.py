"""Result files: written whole or not at all, read back with a reason when they do not load."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from typing import Any

from cudareduce.backend import DeviceInfo
from cudareduce.errors import UsageError
from cudareduce.record import COLUMNS, SCHEMA, Record, Run


def check_writable(path: Path) -> None:
    """Fail now, before anything is measured, if a file could not be written there."""
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it")
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: the folder {folder} does not exist; create it")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"cannot write {path}: permission denied; choose another place")


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it, so that no reader sees half of it; what
    is no plain file, as a pipe or /dev/stdout, is written to and stays what it is."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        temporary.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from None


def to_json(run: Run) -> str:
    """A run as JSON; what is not a number is null."""
    head: dict[str, Any] = {
        "schema": run.schema,
        "created": run.created,
        "tool": dict(run.tool),
        "device": asdict(run.device),
        "protocol": dict(run.protocol),
    }
    head["records"] = [_plain(asdict(record)) for record in run.records]
    return json.dumps(head, indent=1, allow_nan=False) + "\n"


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def to_csv(run: Run) -> str:
    """The records as CSV, the same names in the same order."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in run.records:
        writer.writerow(_plain(asdict(record)))
    return text.getvalue()


def read_json(path: Path) -> Any:
    """What a JSON file holds; one that is missing or truncated is a UsageError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON, or is cut short: {error}") from None


def load(path: Path) -> Run:
    """Read a result file; one that is missing, truncated or another tool's is a UsageError."""
    data = read_json(path)
    if not isinstance(data, dict) or "schema" not in data or "records" not in data:
        raise UsageError(f"{path} is not a result of cudareduce: write one with bench --json")
    if data["schema"] != SCHEMA:
        raise UsageError(
            f"{path} has schema {data['schema']}, this version reads {SCHEMA}: bench again"
        )
    try:
        records = tuple(_record(values) for values in data["records"])
        device = DeviceInfo(**known_fields(DeviceInfo, data["device"]))
        return Run(data["tool"], device, data["protocol"], records, data["created"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is not a whole result of cudareduce: {error}") from None


def _record(values: dict[str, Any]) -> Record:
    known = known_fields(Record, values)
    return Record(**known | {"rounds_us": tuple(known.get("rounds_us") or ())})


def known_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields this version knows; newer ones of the same schema are left out."""
    names = _names(kind)
    return {key: value for key, value in values.items() if key in names}


@cache
def _names(kind: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(kind))
