"""The baseline of compiled kernels: a file of a kind of its own, read back with care."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cudareduce.compare.machine_code import Code, Resources, histogram_text, read_histogram
from cudareduce.compare.traffic import Traffic
from cudareduce.errors import BaselineError, UsageError
from cudareduce.results.store import is_missing, read_json

KIND = "cudareduce compile"
#: Incremented when a field is removed or changes its meaning; a new field does not increment it.
SCHEMA = 2
#: Remedy for a file that --update-baseline cannot read either.
_REMEDY = "delete it, then write a new one with --update-baseline"
_LISTS = (
    ("flags", str, "text", 0), ("architectures", int, "number", 1), ("units", dict, "unit", 1),
    ("traffic", dict, "kernel", 0),
)  # fmt: skip
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
        """Identifies the machine code of a unit without the name of the kernel."""
        sha = self.code.sha if self.code else self.cubin_sha
        return *self.key[1:], self.block, self.items, self.resources, sha

    def same_as(self, other: Unit) -> bool:
        """Whether machine code and launch are identical."""
        mine, theirs = ((u.cubin_sha, u.block, u.items) for u in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class Failed:
    """Takes the place of a unit that does not compile; never stored."""

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
    """All kernels compiled by one nvcc."""

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


def to_json(made: CompiledSet) -> str:
    """One unit per line, so that a diff shows which kernels changed; resources that are zero are
    omitted."""
    head = asdict(replace(made, units=(), traffic=()))
    units = [unit_values(unit) for unit in made.units]
    for values in units:
        used = values["resources"].items()
        values["resources"] = {name: n for name, n in used if n or name == "registers"}
    lists = {"units": units, "traffic": [asdict(each) for each in made.traffic]}
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
    problem = next(_problems(data), None)
    if problem:
        raise UsageError(f"{path} is not a whole baseline: {problem}; {_REMEDY}")
    units = tuple(_unit(unit) for unit in data["units"])
    if len({unit.key for unit in units}) < len(units):
        raise UsageError(f"{path} contradicts itself: it holds a kernel twice; {_REMEDY}")
    lists = {name: tuple(data[name]) for name in ("flags", "architectures")}
    lists["traffic"] = tuple(Traffic(**_known_fields(Traffic, each)) for each in data["traffic"])
    unknown = {"disassembler": None}  # where a file does not tell
    return CompiledSet(**unknown | _known_fields(CompiledSet, data) | lists | {"units": units})


def _problems(data: Mapping[str, Any]) -> Iterator[str]:
    """Problems with the content of a file; each check relies on those before it. An empty file
    would let everything pass."""
    for name in ("nvcc", "created"):
        if not isinstance(data.get(name), str):
            yield f"{name} is {data.get(name)!r}"
    if not isinstance(data.get("tool"), dict):
        yield f"tool is {data.get('tool')!r}"
    if not isinstance(data.get("disassembler"), str | None):
        yield f"disassembler is {data['disassembler']!r}"
    for name, kind, word, least in _LISTS:
        values = data.get(name)
        if not isinstance(values, list) or len(values) < least:
            yield f"{name} is {values!r}"
        elif not all(type(value) is kind for value in values):
            yield f"{name} holds what is no {word}"
    for number, unit in enumerate(data["units"], 1):
        for problem in _unit_problems(unit):
            yield f"unit {number}: {problem}"
        if unit["arch"] not in data["architectures"]:
            yield f"unit {number}: sm_{unit['arch']} is not among the architectures"
    counts = [each.name for each in fields(Traffic) if each.type != "str"]
    for number, traffic in enumerate(data["traffic"], 1):
        for problem in (
            *_wrong_texts(traffic, "kernel", "op", "dtype"),
            *_wrong_counts(traffic, *counts), *_wrong_counts(traffic, "block", "items", least=1),
        ):  # fmt: skip
            yield f"traffic {number}: {problem}"


def _unit_problems(unit: Mapping[str, Any]) -> Iterator[str]:
    yield from _wrong_texts(unit, "kernel", "op", "dtype", "acc", "stage", "cubin_sha")
    yield from _wrong_counts(unit, "block", "items", "arch", least=1)
    used, code = unit.get("resources"), unit.get("code")
    if not isinstance(used, dict):
        yield f"resources is {used!r}"
    else:  # counts of newer versions are allowed
        yield from (f"resources: {wrong}" for wrong in _wrong_counts(used, "registers", *used))
    if not isinstance(code, dict | None):
        yield f"code is {code!r}"
    elif code is not None:
        wrong_fields = (*_wrong_texts(code, "sha"), *_wrong_counts(code, "in_flight"))
        yield from (f"code: {wrong}" for wrong in wrong_fields)
        try:
            read_histogram(code["opcodes"])
        except (KeyError, AttributeError, ValueError):
            yield f"code: opcodes is {code.get('opcodes')!r}"


def _wrong_texts(values: Mapping[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        if not isinstance(values.get(name), str):
            yield f"{name} is {values.get(name)!r}"


def _wrong_counts(values: Mapping[str, Any], *names: str, least: int = 0) -> Iterator[str]:
    for name in names:
        value = values.get(name)
        if type(value) is not int or value < least:
            yield f"{name} is {value!r}"


def _unit(values: Mapping[str, Any]) -> Unit:
    resources = Resources(**_known_fields(Resources, values["resources"]))
    code = values.get("code")
    if code is not None:
        code = Code(code["sha"], read_histogram(code["opcodes"]), code["in_flight"])
    return Unit(**_known_fields(Unit, values) | {"resources": resources, "code": code})


def _known_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that this version knows."""
    names = {f.name for f in fields(kind)}
    return {key: value for key, value in values.items() if key in names}
