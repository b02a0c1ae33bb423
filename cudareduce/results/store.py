"""Result files: written whole or not at all, read back with a reason when they do not load."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from functools import cache
from pathlib import Path
from secrets import token_hex
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from cudareduce.errors import UsageError
from cudareduce.escapes import shown
from cudareduce.machine.device import DeviceInfo
from cudareduce.progress import say
from cudareduce.results.record import COLUMNS, SCHEMA, VERDICTS, Record, Run

#: The types of numbers in JSON, of which true and false are none.
NUMBERS = frozenset((int, float))


def _figures(value: Any) -> bool:
    return type(value) is dict and NUMBERS.issuperset(map(type, value.values()))


def _connected(value: Any, count: int) -> bool:
    """Whether it says of a GPU where it is, and what leads from it to those of so many ranks."""
    kinds = {"name": (str,), "address": (str,), "pcie": (str, NoneType)}
    lists = {"ways": (str, NoneType), "reaches": (bool, NoneType)}
    return (
        type(value) is dict
        and all(type(value.get(name, 0)) in kind for name, kind in kinds.items())
        and all(type(value.get(name)) is list and len(value[name]) == count for name in lists)
        and all(type(each) in kind for name, kind in lists.items() for each in value[name])
    )


#: What tables take from a protocol.
PROTOCOL: Mapping[str, Callable[[Any], bool]] = {
    "suite": lambda value: type(value) is str,
    "remarks": lambda value: type(value) is list and {str}.issuperset(map(type, value)),
    "floors_us": _figures,
    "gpus": lambda value: type(value) is list and all(_connected(gpu, len(value)) for gpu in value),
    "profiler": lambda value: (
        type(value) is dict
        and value.keys() == {"throughput_pct", "why_not"}
        and _figures(value["throughput_pct"])
        and type(value["why_not"]) is str
    ),
}


def check_writable(path: Path) -> None:
    """Raise UsageError now, before anything is measured, if a file could not be written there."""
    there = not is_missing(path)
    try:
        if there:
            path.stat()
    except OSError as error:  # links in a circle, a name that is too long
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from None
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; name a file in it")
    if not folder.is_dir():
        raise UsageError(f"cannot write {path}: the folder {folder} does not exist; create it")
    written = ([path] if there else []) + ([] if there and not path.is_file() else [folder])
    if not all(os.access(place, os.W_OK) for place in written):
        raise UsageError(f"cannot write {path}: permission denied; choose another place")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises UsageError."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that no reader sees half of it; what
    is no plain file, as a pipe or /dev/stdout, is written to and stays what it is, and so does a
    link. Raises UsageError."""
    place = Path(os.path.realpath(path))
    # A name of its own for each write, also of processes in containers that share a folder.
    temporary = place.with_name(f".cudareduce-{token_hex(8)}")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        if place.exists() and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, "permission denied")
        with temporary.open("xb") as file:  # fails for an existing file or link
            file.write(content)
        if place.exists():
            shutil.copymode(place, temporary)
        temporary.replace(place)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from None


def to_json(run: Run) -> str:
    """Return a run as JSON with one record per line, so that a diff shows which have changed.

    Device and record fields that are null, or not finite, are omitted; `load` fills them in.
    """
    head = {
        "schema": run.schema,
        "created": run.created,
        "tool": dict(run.tool),
        "device": _known(asdict(run.device)),
        "protocol": dict(run.protocol),
    }
    fields = "".join(f' "{name}": {_compact(value)},\n' for name, value in head.items())
    records = ",\n".join(f"  {_compact(_known(asdict(record)))}" for record in run.records)
    return f'{{\n{fields} "records": [\n{records}\n ]\n}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in _plain(values).items() if value is not None}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def to_csv(run: Run) -> str:
    """The records as CSV, the same names in the same order; what cannot be seen in a text is
    escaped."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in run.records:
        values = _plain(asdict(record)).items()
        writer.writerow({k: _cell(v) for k, v in values if k in COLUMNS})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value as CSV holds it: a list of texts as one."""
    value = "; ".join(value) if isinstance(value, tuple) else value
    return shown(value) if isinstance(value, str) else value


def run_texts(run: Run) -> dict[str, Callable[[], str]]:
    """What makes the texts of a run, by format."""
    return {"csv": lambda: to_csv(run), "json": lambda: to_json(run)}


def is_missing(path: Path) -> bool:
    """Whether nothing is there; why it cannot be looked at is for reading to tell."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def read_json(path: Path) -> Any:
    """What a JSON file or a pipe holds; one that is missing, cannot be read or is cut short is a
    UsageError."""
    try:
        return json_of(path, path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"there is no {path}: make it with cudareduce bench --json") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name another file") from None


def json_of(path: Path, content: bytes) -> Any:
    """What a file holds that was read before; one that is no JSON is a UsageError."""
    try:
        return json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        why = str(error)
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError:  # of the decoder, or of a number with thousands of digits
        why = "it holds what is neither UTF-8 nor a number of usual length"
    raise UsageError(f"{path} is not JSON, or is cut short: {why}; make it again")


def load(path: Path) -> Run:
    """Read a result file; one that is missing, truncated or another tool's is a UsageError, and so
    is one with a value that is not of its field's type."""
    return run_of(path, read_json(path))


def run_of(path: Path, data: Any) -> Run:
    """What a result file holds, as a run; one that is none is a UsageError as `load` has it."""
    if not isinstance(data, dict) or "schema" not in data or "records" not in data:
        raise UsageError(f"{path} is not a result of cudareduce: write one with bench --json")
    schema = data["schema"]
    if type(schema) is not int:  # true and 1.0 equal 1
        raise UsageError(f"{path}: schema is not a whole number; bench again")
    if schema != SCHEMA:
        raise UsageError(f"{path} has schema {schema}, this version reads {SCHEMA}: bench again")
    place = ""
    try:
        for name, kind in _PARTS.items():
            if type(data.get(name)) is not kind:
                raise Unfit(f"{name} is {_misfit(data.get(name), kind)}")
        for name in ("tool", "protocol"):
            if not _finite(data[name]):  # could not be written again
                raise Unfit(f"{name} holds what is not a finite number")
        place = "protocol: "
        for name, fits in PROTOCOL.items():
            if data["protocol"].get(name) is not None and not fits(data["protocol"][name]):
                raise Unfit(f"{name} is not what tables are made of")
        place = "device: "
        device = DeviceInfo(*values_of(DeviceInfo, data["device"]))
        records = []
        for number, values in enumerate(data["records"], 1):
            place = f"record {number}: "
            records.append(record := Record(*values_of(Record, values)))
            if record.verdict not in VERDICTS:
                raise Unfit(f"verdict is not {', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}")
    except Unfit as error:
        raise UsageError(f"{path}: {place}{error}; bench again") from None
    return Run(data["tool"], device, data["protocol"], tuple(records), data["created"])


class Unfit(Exception):
    """What is wrong with a field, in words."""


_PARTS = {"tool": dict, "device": dict, "protocol": dict, "records": list, "created": str}
_TEXTS = tuple[str, ...]
_WORDS: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    tuple: "a list of numbers", _TEXTS: "a list of texts", list: "a list", dict: "an object",
}  # fmt: skip
_NUMBERS_OR_NONE = NUMBERS | {type(None)}
_LARGEST = sys.float_info.max


def _misfit(value: Any, kind: Any) -> str:
    return "missing" if value is None else f"not {_WORDS[kind]}"


def values_of(kind: type, found: Any) -> list[Any]:
    """The values of all fields, in their order. One that is not there is its default, or unknown;
    one of a newer version with the same schema is left out."""
    if type(found) is not dict:
        raise Unfit("it is not an object")
    expected, values = _types(kind), _unsaid(kind).copy()
    missing = _needed(kind) - found.keys()
    if missing:
        raise Unfit(f"{min(missing)} is missing")
    for name, value in found.items():
        types = expected.get(name)
        if types is None:
            continue
        if type(value) not in types:  # not isinstance, for which true is a whole number
            value = _converted(name, value, types)
        elif type(value) in NUMBERS and not -_LARGEST <= value <= _LARGEST:
            raise Unfit(f"{name} is not a finite number")
        elif type(value) is str and not value.isascii() and not _printable(value):
            raise Unfit(f"{name} holds half a character, which cannot be printed")
        values[name] = value
    return list(values.values())


@cache
def _unsaid(kind: type) -> dict[str, Any]:
    """All fields in their order, each with its default; others are None."""
    return {f.name: None if f.default is MISSING else f.default for f in fields(kind)}


@cache
def _needed(kind: type) -> frozenset[str]:
    """The fields that must be there: without a default, and nothing is not allowed."""
    lacking = {f.name for f in fields(kind) if f.default is MISSING}
    return frozenset(name for name in lacking if type(None) not in _types(kind)[name])


def _finite(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(values, allow_nan=False)
    except ValueError:
        return False
    return True


def _printable(text: str) -> bool:
    """Whether it is Unicode: JSON can write one half of a surrogate pair without the other."""
    return text.encode("utf-8", "ignore").decode("utf-8") == text


def _converted(name: str, value: Any, types: tuple[Any, ...]) -> Any:
    """What JSON writes in another way: a tuple as a list, and a number perhaps as a whole one."""
    if types[0] in (tuple, _TEXTS) and value in (None, ()):
        return ()
    if types[0] == _TEXTS and type(value) is list and {str}.issuperset(map(type, value)):
        if not all(map(_printable, value)):
            raise Unfit(f"{name} holds half a character, which cannot be printed")
        return tuple(value)
    if types[0] is tuple and type(value) is list and _NUMBERS_OR_NONE.issuperset(map(type, value)):
        if not all(number is None or -_LARGEST <= number <= _LARGEST for number in value):
            raise Unfit(f"{name} holds what is not a finite number")
        return tuple(None if number is None else float(number) for number in value)
    if types[0] is float and type(value) is int:
        if not -_LARGEST <= value <= _LARGEST:
            raise Unfit(f"{name} is not a finite number")
        return float(value)
    raise Unfit(f"{name} is {_misfit(value, types[0])}")


@cache
def _types(kind: type) -> dict[str, tuple[Any, ...]]:
    """Names and types of a dataclass's fields, as they are annotated, in their order."""
    hints = get_type_hints(kind)
    return {f.name: _alternatives(hints[f.name]) for f in fields(kind)}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if hint == _TEXTS:
        return (hint,)
    return (tuple,) if get_origin(hint) is tuple else get_args(hint) or (hint,)


def runs_of(paths: Sequence[Path]) -> dict[Path, Run]:
    """The runs of these files. Of several, those that hold no records, such as what `reveal` and
    `selftest` store, are left out, and that is said; none at all, and one that is damaged, is a
    UsageError."""
    found, others = {}, []
    for path in paths:
        data = read_json(path)
        if len(paths) > 1 and isinstance(data, dict) and not data.get("records"):
            others.append(path)
        else:
            found[path] = run_of(path, data)
    names = ", ".join(map(str, others))
    if not found:
        raise UsageError(f"none holds records of bench: {names}; write some with bench --json")
    if others:
        say(f"left out, without records of bench: {names}")
    return found
