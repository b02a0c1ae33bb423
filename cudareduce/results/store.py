"""Result files: written atomically, and validated when read."""

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
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from cudareduce.errors import UsageError
from cudareduce.machine import DeviceInfo
from cudareduce.progress import say
from cudareduce.results.record import COLUMNS, SCHEMA, VERDICTS, Record, Run
from cudareduce.text import shown

#: The types of JSON numbers, without bool, which is a subclass of int.
_NUMBERS = frozenset((int, float))


def _all_numbers(value: Any) -> bool:
    return type(value) is dict and _NUMBERS.issuperset(map(type, value.values()))


def _all_texts(value: Any) -> bool:
    return type(value) is list and {str}.issuperset(map(type, value))


def _is_topology(gpus: Any) -> bool:
    """True if the value is a list of GPUs, one per rank, with name, address and links."""
    kinds = {"name": (str,), "address": (str,), "pcie": (str, NoneType)}
    lists = {"ways": (str, NoneType), "reaches": (bool, NoneType)}
    return type(gpus) is list and all(
        type(gpu) is dict
        and all(type(gpu.get(name, 0)) in kind for name, kind in kinds.items())
        and all(type(gpu.get(name)) is list and len(gpu[name]) == len(gpus) for name in lists)
        and all(type(each) in kind for name, kind in lists.items() for each in gpu[name])
        for gpu in gpus
    )


def _is_profiler(value: Any) -> bool:
    return (
        type(value) is dict
        and value.keys() == {"throughput_pct", "why_not"}
        and _all_numbers(value["throughput_pct"])
        and type(value["why_not"]) is str
    )


#: Validators of the protocol fields that tables use.
_PROTOCOL: Mapping[str, Callable[[Any], bool]] = {
    "suite": lambda value: type(value) is str,
    "remarks": _all_texts,
    "floors_us": _all_numbers,
    "gpus": _is_topology,
    "profiler": _is_profiler,
}


def check_writable(path: Path) -> None:
    """Raise UsageError if the file cannot be written. Called before a measurement starts."""
    there = not is_missing(path)
    try:
        if there:
            path.stat()
    except OSError as error:  # such as circular links or a too long name
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
    """Write a text file atomically. Raises UsageError."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: to a temporary file, which is then renamed. Follows symbolic links;
    writes directly to pipes and devices. Raises UsageError."""
    place = Path(os.path.realpath(path))
    # A unique name, also among containers that share the folder.
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
    """A run as JSON with one record per line, so that a diff shows the changed records. Fields that
    are null or not finite are omitted; `load` fills them in."""
    head = {
        "schema": run.schema,
        "created": run.created,
        "tool": dict(run.tool),
        "device": known_fields(asdict(run.device)),
        "protocol": dict(run.protocol),
    }
    fields = "".join(f' "{name}": {_compact(value)},\n' for name, value in head.items())
    records = ",\n".join(f"  {_compact(known_fields(asdict(record)))}" for record in run.records)
    return f'{{\n{fields} "records": [\n{records}\n ]\n}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def known_fields(values: dict[str, Any]) -> dict[str, Any]:
    """The items whose values are not None, infinite or NaN."""
    return {key: value for key, value in _plain(values).items() if value is not None}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def to_csv(run: Run) -> str:
    """The records as CSV, with one column per field. Unprintable characters are escaped."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in run.records:
        values = _plain(asdict(record)).items()
        writer.writerow({k: _cell(v) for k, v in values if k in COLUMNS})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A value as a CSV cell; lists of texts are joined."""
    value = "; ".join(value) if isinstance(value, tuple) else value
    return shown(value) if isinstance(value, str) else value


def run_texts(run: Run) -> dict[str, Callable[[], str]]:
    """The functions that render a run, by format."""
    return {"csv": lambda: to_csv(run), "json": lambda: to_json(run)}


def is_missing(path: Path) -> bool:
    """True if the file does not exist. False if that cannot be determined; reading it then raises
    the error."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def read_json(path: Path) -> Any:
    """Parse a JSON file or pipe. Raises UsageError if it is missing, unreadable or truncated."""
    try:
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"there is no {path}: make it with cudareduce bench --json") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name another file") from None
    except json.JSONDecodeError as error:
        why = str(error)
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError:  # from the decoder, or a number with too many digits
        why = "it is not UTF-8, or has a number of thousands of digits"
    raise UsageError(f"{path} is not JSON, or is cut short: {why}; make it again")


def load(path: Path) -> Run:
    """Read a result file. Raises UsageError if it is missing, truncated or not a result file, or if
    a field has a value of the wrong type."""
    return run_of(path, read_json(path))


def run_of(path: Path, data: Any) -> Run:
    """Convert the parsed JSON of a result file to a run. Raises UsageError as `load` does, with
    `path` in the message."""
    if not isinstance(data, dict) or "schema" not in data or "records" not in data:
        raise UsageError(f"{path} is not a result of cudareduce: write one with bench --json")
    schema = data["schema"]
    if type(schema) is not int:  # not isinstance, since true and 1.0 equal 1
        raise UsageError(f"{path}: schema is not a whole number; bench again")
    if schema != SCHEMA:
        raise UsageError(f"{path} has schema {schema}, this version reads {SCHEMA}: bench again")
    place = ""
    try:
        for name, kind in _PARTS.items():
            if type(data.get(name)) is not kind:
                raise Unfit(f"{name} is {_misfit(data.get(name), kind)}")
        for name in ("tool", "protocol"):
            if not _finite(data[name]):  # JSON cannot represent it
                raise Unfit(f"{name} holds a number that is not finite")
        place = "protocol: "
        for name, fits in _PROTOCOL.items():
            if data["protocol"].get(name) is not None and not fits(data["protocol"][name]):
                raise Unfit(f"{name} has another form than this version reads")
        place = "device: "
        device = parse(DeviceInfo, data["device"])
        records = []
        for number, values in enumerate(data["records"], 1):
            place = f"record {number}: "
            records.append(record := parse(Record, values))
            if record.verdict not in VERDICTS:
                raise Unfit(f"verdict is not {', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}")
    except Unfit as error:
        raise UsageError(f"{path}: {place}{error}; bench again") from None
    return Run(data["tool"], device, data["protocol"], tuple(records), data["created"])


_Item = TypeVar("_Item")


class Unfit(Exception):
    """A value in a file has the wrong form; the message describes the error."""


_PARTS = {"tool": dict, "device": dict, "protocol": dict, "records": list, "created": str}
_TEXTS = tuple[str, ...]
_WORDS: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false",
    tuple: "a list of numbers", _TEXTS: "a list of texts", list: "a list", dict: "an object",
}  # fmt: skip
_NUMBERS_OR_NONE = _NUMBERS | {type(None)}
_LARGEST = sys.float_info.max


def _misfit(value: Any, kind: Any) -> str:
    return "missing" if value is None else f"not {_WORDS[kind]}"


def parse(kind: type[_Item], value: Any) -> _Item:
    """Convert a JSON object to a dataclass. Missing fields get their default or None; unknown
    fields, from newer versions, are ignored. Raises Unfit for values of the wrong type."""
    if type(value) is not dict:
        raise Unfit("it is not an object")
    key: Any = kind
    expected, values = _types(key), dict(_defaults(key))
    missing = _required(key) - value.keys()
    if missing:
        raise Unfit(f"{min(missing)} is missing")
    for name, item in value.items():
        types = expected.get(name)
        if types is None:
            continue
        if type(item) not in types:  # not isinstance, for which true is an int
            item = _converted(name, item, types)
        elif type(item) in _NUMBERS and not -_LARGEST <= item <= _LARGEST:
            raise Unfit(f"{name} is not a finite number")
        elif type(item) is str and not item.isascii() and not _printable(item):
            raise Unfit(f"{name} contains an unpaired UTF-16 surrogate, which cannot be printed")
        values[name] = item
    return kind(**values)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The default of each field of a dataclass; None for fields without one."""
    return {f.name: None if f.default is MISSING else f.default for f in fields(kind)}


@cache
def _required(kind: Any) -> frozenset[str]:
    """The fields of a dataclass that have no default and do not allow None."""
    lacking = {f.name for f in fields(kind) if f.default is MISSING}
    return frozenset(name for name in lacking if type(None) not in _types(kind)[name])


def _finite(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(values, allow_nan=False)
    except ValueError:
        return False
    return True


def _printable(text: str) -> bool:
    """True if a text is valid Unicode. JSON can contain single surrogates, which are not."""
    return text.encode("utf-8", "ignore").decode("utf-8") == text


def _converted(name: str, value: Any, types: tuple[Any, ...]) -> Any:
    """Convert a list to a tuple, and an integer to a float. Raises Unfit."""
    if types[0] in (tuple, _TEXTS) and value in (None, ()):
        return ()
    if types[0] == _TEXTS and type(value) is list and {str}.issuperset(map(type, value)):
        if not all(map(_printable, value)):
            raise Unfit(f"{name} contains an unpaired UTF-16 surrogate, which cannot be printed")
        return tuple(value)
    if types[0] is tuple and type(value) is list and _NUMBERS_OR_NONE.issuperset(map(type, value)):
        if not all(number is None or -_LARGEST <= number <= _LARGEST for number in value):
            raise Unfit(f"{name} holds a number that is not finite")
        return tuple(None if number is None else float(number) for number in value)
    if types[0] is float and type(value) is int:
        if not -_LARGEST <= value <= _LARGEST:
            raise Unfit(f"{name} is not a finite number")
        return float(value)
    raise Unfit(f"{name} is {_misfit(value, types[0])}")


@cache
def _types(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The annotated types of a dataclass's fields."""
    hints = get_type_hints(kind)
    return {f.name: _alternatives(hints[f.name]) for f in fields(kind)}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if hint == _TEXTS:
        return (hint,)
    origin = get_origin(hint)
    return (origin,) if origin in (tuple, dict) else get_args(hint) or (hint,)


def runs_of(paths: Sequence[Path]) -> dict[Path, Run]:
    """Load several result files. Files without records, such as those of `reveal` and `selftest`,
    are skipped with a message if there are others. Raises UsageError for a damaged file, and if no
    file is left."""
    runs, others = {}, []
    for path in paths:
        data = read_json(path)
        if len(paths) > 1 and isinstance(data, dict) and not data.get("records"):
            others.append(path)
        else:
            runs[path] = run_of(path, data)
            for number, record in enumerate(runs[path].records, 1):
                if record.time_us is not None and record.time_us <= 0:
                    raise UsageError(
                        f"{path}: record {number}: time_us is {record.time_us:g}, and a time is "
                        "above 0; bench again"
                    )
    names = ", ".join(map(str, others))
    if not runs:
        raise UsageError(f"none holds records of bench: {names}; write some with bench --json")
    if others:
        say(f"left out, without records of bench: {names}")
    return runs
