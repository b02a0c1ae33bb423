"""A published experiment: its versions in their order, under their author's names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One published version: the author's name for it and the kernel that is it.

    `n`, `rows`, `block` and `items` stand where this version's differ from the experiment's.
    `published` holds the author's figures (`time_us`, `gb_s`, `speedup`, `utilisation_pct`),
    `erratum` what is wrong with the version.
    """

    name: str
    kernel: str
    n: int | None = None
    rows: int | None = None
    block: int | None = None
    items: int | None = None
    published: Mapping[str, Any] = field(default_factory=dict)
    erratum: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """One published experiment; `experiment` holds its sizes, block, inputs and timed region."""

    id: str
    title: str
    source: str
    rows: tuple[SuiteRow, ...]
    experiment: Mapping[str, Any] = field(default_factory=dict)


def load_suite(path: Path) -> Suite:
    """Read one suite file; what is not TOML, or misses a key, is a UsageError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = tuple(SuiteRow(**row) for row in data.pop("row"))
        return Suite(path.stem, data.pop("title"), data.pop("source"), rows, data)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not a valid suite: {error}") from None
