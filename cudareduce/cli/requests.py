"""From click's values to a command's request: the one place where options become typed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

Request = TypeVar("Request")


def made(kind: type[Request], options: Mapping[str, Any], unused: Collection[str] = ()) -> Request:
    """A request of this kind: each field by its name, those of requests inside it likewise.

    `unused` are options of the command that this kind of request has no place for, besides --debug,
    which is read where errors are printed. Another one without a field is a fault of ours, and a
    TypeError: it would have no effect.
    """
    left = {key: value for key, value in options.items() if key not in {"debug", *unused}}
    request = _filled(kind, left)
    if left:
        raise TypeError(f"{kind.__name__} has no field for {', '.join(left)}")
    return request


def _filled(kind: type[Request], left: dict[str, Any]) -> Request:
    """Take what fields are called out of `left`; a field that is not there keeps its default."""
    types = get_type_hints(kind)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(types[field.name]):
            values[field.name] = _filled(types[field.name], left)
        elif field.name in left:
            values[field.name] = left.pop(field.name)
    return kind(**values)
