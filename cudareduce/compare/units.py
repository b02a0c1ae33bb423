"""Compiled kernels, and the file that stores them as a baseline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from cudareduce.compare.machine_code import Code, Resources, histogram_text, read_histogram
from cudareduce.compare.traffic import Traffic
from cudareduce.errors import BaselineError, UsageError
from cudareduce.results.store import Unfit, is_missing, parse, read_json

KIND = "cudareduce compile"
#: Incremented when a field is removed or changes its meaning; a new field does not increment it.
SCHEMA = 2
#: Remedy for a file that --update-baseline cannot read either.
_REMEDY = "delete it, then write a new one with --update-baseline"
_Item = TypeVar("_Item")
Key = tuple[str, str, str, str, str, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """One kernel compiled for one stage of one reduction and one architecture. `code` is None
    without a disassembler."""

    kernel: str
    op: str
    dtype: str
    acc: str
    stage: str
    block: int
    items: int
    arch: int
    cubin_sha: str
    resources: Resources
    code: Code | None = None

    @property
    def key(self) -> Key:
        """Identifies a unit over time. Block and items are not part of it: their change is
        compared."""
        return self.kernel, self.op, self.dtype, self.acc, self.stage, self.arch

    @property
    def code_key(self) -> tuple[object, ...]:
        """A key that is equal for identical machine code of kernels with different names."""
        sha = self.code.sha if self.code else self.cubin_sha
        return *self.key[1:], self.block, self.items, self.resources, sha

    def same_as(self, other: Unit) -> bool:
        """Whether machine code and launch are identical."""
        own_code, other_code = ((u.cubin_sha, u.block, u.items) for u in (self, other))
        return own_code == other_code


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit that does not compile, with the first error. It is never stored."""

    kernel: str
    op: str
    dtype: str
    acc: str
    stage: str
    arch: int
    error: str

    @property
    def key(self) -> Key:
        """The key of the unit."""
        return self.kernel, self.op, self.dtype, self.acc, self.stage, self.arch


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The units and memory traffic of one tree or baseline, the rules that units break, and what
    does not compile."""

    units: Sequence[Unit] = ()
    traffic: Sequence[Traffic] = ()
    broken: Mapping[Key, Sequence[str]] = field(default_factory=dict)
    failed: Sequence[Failed] = ()


@dataclass(frozen=True, slots=True)
class CompiledSet:
    """All units compiled by one nvcc: the content of a baseline file."""

    tool: Mapping[str, Any]
    nvcc: str
    flags: tuple[str, ...]
    disassembler: str | None
    architectures: tuple[int, ...]
    units: tuple[Unit, ...]
    traffic: tuple[Traffic, ...] = ()
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    kind: str = KIND
    schema: int = SCHEMA


def to_json(compiled: CompiledSet) -> str:
    """The text of a baseline file. Each unit is one line, so that a diff shows which kernels
    changed; resources that are zero are omitted."""
    head = asdict(replace(compiled, units=(), traffic=()))
    units = [unit_values(unit) for unit in compiled.units]
    for values in units:
        used = values["resources"].items()
        values["resources"] = {name: n for name, n in used if n or name == "registers"}
    lists = {"units": units, "traffic": [asdict(each) for each in compiled.traffic]}
    body = json.dumps({key: value for key, value in head.items() if key not in lists}, indent=1)
    for name, items in lists.items():
        lines = ",\n".join(f"  {json.dumps(item, separators=(',', ':'))}" for item in items)
        body = f'{body[:-2]},\n "{name}": [\n{lines}\n ]\n}}'
    return f"{body}\n"


def unit_values(unit: Unit | Failed) -> dict[str, Any]:
    """A unit as JSON values."""
    values = asdict(unit)
    if isinstance(unit, Unit) and unit.code is not None:
        values["code"]["opcodes"] = histogram_text(unit.code.opcodes)
    return values


def load(path: Path) -> CompiledSet:
    """Read a baseline. Raises BaselineError if it is missing, UsageError if it is cut short, of
    another kind or schema, or contradicts itself."""
    if is_missing(path):
        raise BaselineError(
            f"there is no baseline {path}: make it with "
            f"cudareduce check --compile --baseline {path} --update-baseline"
        )
    try:
        data = read_json(path)
    except UsageError as error:
        if not path.is_file():
            raise
        raise UsageError(f"{error}; {_REMEDY}") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise UsageError(
            f"{path} holds no compiled kernels: name a file of check --compile, or a new one"
        )
    if data.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} has schema {data.get('schema')}, this version reads {SCHEMA}: {_REMEDY}"
        )
    try:
        return _compiled_set(data)
    except Unfit as problem:
        raise UsageError(f"{path} is not a whole baseline: {problem}; {_REMEDY}") from None


def _compiled_set(data: Mapping[str, Any]) -> CompiledSet:
    """Parse a baseline file. Raises Unfit, also for an empty one, which would let every kernel
    pass."""
    head = {"nvcc": str, "created": str, "tool": dict, "flags": list, "architectures": list,
            "units": list, "traffic": list}  # fmt: skip
    for name, kind in head.items():
        value = data.get(name)
        if type(value) is not kind or (not value and name in ("architectures", "units")):
            raise Unfit(f"{name} is {value!r}")
    if not isinstance(data.get("disassembler"), str | None):
        raise Unfit(f"disassembler is {data['disassembler']!r}")
    for name, item in (("flags", str), ("architectures", int)):
        if any(type(value) is not item for value in data[name]):
            raise Unfit(f"{name} is {data[name]!r}")
    units = {unit.key: unit for unit in _numbered("unit", _unit, data["units"])}
    if len(units) < len(data["units"]):
        raise Unfit("it holds a kernel twice")
    for unit in units.values():
        if unit.arch not in data["architectures"]:
            raise Unfit(f"{unit.kernel}: sm_{unit.arch} is not among the architectures")
    traffic = _numbered("traffic", lambda values: _read(Traffic, values), data["traffic"])
    return CompiledSet(
        tool=data["tool"], nvcc=data["nvcc"], flags=tuple(data["flags"]),
        disassembler=data.get("disassembler"), architectures=tuple(data["architectures"]),
        units=tuple(units.values()), traffic=tuple(traffic), created=data["created"],
    )  # fmt: skip


def _numbered(name: str, read: Callable[[Any], _Item], values: Sequence[Any]) -> Iterator[_Item]:
    for number, value in enumerate(values, 1):
        try:
            yield read(value)
        except Unfit as problem:
            raise Unfit(f"{name} {number}: {problem}") from None


def _unit(values: Any) -> Unit:
    if type(values) is not dict:
        raise Unfit("it is not an object")
    code = values.get("code")
    if code is not None:
        try:
            code = Code(code["sha"], read_histogram(code["opcodes"]), int(code["in_flight"]))
        except (KeyError, TypeError, AttributeError, ValueError):
            raise Unfit("code cannot be read") from None
    return _read(Unit, values | {"resources": _read(Resources, values.get("resources")),
                                 "code": code})  # fmt: skip


def _read(kind: type[_Item], values: Any) -> _Item:
    """Parse a dataclass of texts and counts. Raises Unfit. Unknown fields of newer versions are
    ignored."""
    item = parse(kind, values)
    for f in fields(kind):  # type: ignore[arg-type]
        value = getattr(item, f.name)
        if isinstance(value, int) and value < (f.name in ("block", "items", "arch")):
            raise Unfit(f"{f.name} is {value}")
    return item
