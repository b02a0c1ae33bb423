"""The baseline of compiled kernels: a file of a kind of its own, read back with care."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cudareduce.compiled.resources import Resources
from cudareduce.errors import BaselineError, UsageError
from cudareduce.store import known_fields, read_json

KIND = "cudareduce compile"
#: Raised when a field changes its meaning or goes; new fields do not raise it.
SCHEMA = 1
Key = tuple[str, str, str, str, str, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """One kernel, compiled for one stage of one reduction and one architecture. `instructions` is
    None where there was no disassembler."""

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
    instructions: Mapping[str, int] | None = None

    @property
    def key(self) -> Key:
        """What makes two units the same thing, compiled at different times. Block and items are
        the header's, and when they change it is this that must be compared."""
        return self.kernel, self.op, self.dtype, self.acc, self.stage, self.arch


@dataclass(frozen=True, slots=True)
class CompiledSet:
    """What one nvcc made of all kernels."""

    tool: Mapping[str, Any]
    nvcc: str
    flags: tuple[str, ...]
    disassembler: str | None
    architectures: tuple[int, ...]
    units: tuple[Unit, ...]
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    kind: str = KIND
    schema: int = SCHEMA


def to_json(made: CompiledSet) -> str:
    """One unit a line, so that a diff of the file shows which kernels changed."""
    head = asdict(made)
    units = ",\n".join(f"  {json.dumps(unit)}" for unit in head.pop("units"))
    body = json.dumps(head, indent=1)
    return f'{body[:-2]},\n "units": [\n{units}\n ]\n}}\n'


def load(path: Path) -> CompiledSet:
    """Read a baseline; missing, cut short, another kind of file: each has its message."""
    if not path.exists():
        raise BaselineError(
            f"there is no baseline {path}: make it with "
            f"cudareduce check --compile --baseline {path} --update-baseline"
        )
    data = read_json(path)
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise UsageError(
            f"{path} holds no compiled kernels: --compile takes a file that --update-baseline wrote"
        )
    if data.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} has schema {data.get('schema')}, this version reads {SCHEMA}: write it anew "
            "with --update-baseline"
        )
    try:
        values = known_fields(CompiledSet, data)
        units = tuple(_unit(unit) for unit in values.pop("units"))
        values["flags"] = tuple(values["flags"])
        values["architectures"] = tuple(int(arch) for arch in values["architectures"])
        made = CompiledSet(units=units, **values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{path} is not a whole baseline: {error}; write it anew") from None
    if len({unit.key for unit in made.units}) < len(made.units):
        raise UsageError(f"{path} contradicts itself: a kernel stands there twice; write it anew")
    return made


def _unit(values: Mapping[str, Any]) -> Unit:
    figures = {f.name: int(values["resources"][f.name]) for f in fields(Resources)}
    known = known_fields(Unit, values)
    return Unit(**known | {"resources": Resources(**figures), "arch": int(values["arch"])})
