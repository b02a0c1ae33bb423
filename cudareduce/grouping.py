"""Groups items by a key, and shortens lists of words."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """The items of each key. Keys and items are in the order in which they first occur."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def first_few(words: Iterable[str], most: int) -> str:
    """The first `most` distinct words, then `and N more`."""
    distinct = list(dict.fromkeys(words))
    more = f" and {len(distinct) - most} more" if len(distinct) > most else ""
    return f"{', '.join(distinct[:most])}{more}"
