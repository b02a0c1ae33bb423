"""JSON Schema of result files, derived from the dataclasses."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cudareduce.machine.device import DeviceInfo
from cudareduce.results.record import SCHEMA, VERDICTS, Record

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def result_schema() -> dict[str, Any]:
    """Return the schema (dialect 2020-12) of the files that `bench --json` writes.

    Unknown fields are allowed, because later versions may add some.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cudareduce result",
        "description": "A run: one record for each kernel and problem. Names carry their units. "
        "A field that is missing is null, or has the default of an older version.",
        "type": "object",
        "required": ["schema", "created", "tool", "device", "protocol", "records"],
        "properties": {
            "schema": {"const": SCHEMA},
            "created": {"type": "string", "format": "date-time"},
            "tool": {"type": "object"},
            "device": _object(DeviceInfo),
            "protocol": {"type": "object"},
            "records": {"type": "array", "items": _object(Record)},
        },
    }


def schema_text() -> str:
    """Return the schema as docs/result.schema.json has it."""
    return json.dumps(result_schema(), indent=1) + "\n"


def _object(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    words = {"verdict": {"enum": list(VERDICTS)}}
    without_default = (
        f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    )
    return {
        "type": "object",
        "required": [name for name in without_default if NoneType not in get_args(hints[name])],
        "properties": {f.name: words.get(f.name) or _value(hints[f.name]) for f in fields(kind)},
    }


def _value(hint: Any) -> dict[str, Any]:
    if get_origin(hint) in (Union, UnionType):
        return {"type": [_PLAIN[kind] for kind in get_args(hint)]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _value(get_args(hint)[0])}
    return {"type": _PLAIN[hint]}
