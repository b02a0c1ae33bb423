"""What tables take from the protocol of a result file, which anybody may have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

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
