"""Loads suites: published experiments, with kernels in the author's order and naming."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudareduce.catalog.front_matter import BLOCKS, BadToml, line_of, parse, quoted, unknown_key
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.reduction.patterns import PATTERNS
from cudareduce.reduction.sizes import LARGEST


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One version of a published experiment: the author's name and the id of our kernel.

    `n`, `rows`, `block` and `items` are given if they differ from the experiment's. `published`
    holds the author's figures (`time_us`, `gb_s`, `speedup`, `utilisation_pct`); `erratum` is the
    description of an error in the published version.
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
    """A published experiment; `experiment` holds its sizes, block size, inputs and timed region."""

    id: str
    title: str
    source: str
    rows: tuple[SuiteRow, ...]
    experiment: Mapping[str, Any] = field(default_factory=dict)


#: A rule for values: its description, and a test.
_Rule = tuple[str, Callable[[Any], bool]]


def _whole(least: int, most: int) -> _Rule:
    words = f"a whole number from {least} to {most}"
    return words, lambda value: type(value) is int and least <= value <= most


def _one_of(words: Iterable[object]) -> _Rule:
    known = tuple(words)
    kind = type(known[0])
    return f"one of: {', '.join(map(str, known))}", lambda v: type(v) is kind and v in known


def _list_of(rule: _Rule) -> _Rule:
    words, good = rule
    return (
        f"a non-empty list, each {words}",
        lambda value: isinstance(value, list) and bool(value) and all(map(good, value)),
    )


_TEXT: _Rule = "a non-empty text", lambda value: isinstance(value, str) and bool(value.strip())
_FIGURE: _Rule = (
    "a number from 1e-9 to 1e15",
    lambda v: type(v) in (int, float) and 1e-9 <= v <= 1e15,
)
_SIZE = _whole(0, LARGEST)
_SHAPE = {"rows": _SIZE, "block": _one_of(BLOCKS)}
_EXPERIMENT: Mapping[str, _Rule] = _SHAPE | {
    "title": _TEXT, "source": _TEXT, "op": _one_of(OPERATORS), "dtype": _one_of(DTYPES),
    "n": _list_of(_SIZE), "pattern": _one_of(PATTERNS), "region": _one_of(("total", "first-pass")),
    "gpu": _TEXT, "gpu_peak_gb_s": _FIGURE, "timed": _TEXT, "note": _TEXT,
    "errata": _list_of(_TEXT),
}  # fmt: skip
_ROW: Mapping[str, _Rule] = _SHAPE | {
    "name": _TEXT, "kernel": _TEXT, "n": _SIZE, "items": _whole(1, 1024), "erratum": _TEXT,
    "published": ("a table", lambda value: isinstance(value, dict)),
}  # fmt: skip
_PUBLISHED = dict.fromkeys(("time_us", "gb_s", "speedup", "utilisation_pct"), _FIGURE)


def load_suite(path: Path) -> Suite:
    """Load a suite file. Raises UsageError with file and key if it cannot be read, is not TOML,
    lacks a required key, or has an unknown key or invalid value."""
    try:
        text = path.read_text(encoding="utf-8")
        data = parse(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"cannot read {path}: {reason}; correct or remove the suite") from None
    except BadToml as error:
        raise UsageError(f"{path}:{error.line}: the suite is not valid TOML: {error}") from None
    problem = next(_problems(data), None)
    if problem:
        key, what = problem
        line = line_of(text, key)
        place = f"{path}:{line}" if line and " " not in key else path
        raise UsageError(f"{place}: {key}: {what}")
    rows = tuple(SuiteRow(**row) for row in data.pop("row"))
    return Suite(path.stem, data.pop("title"), data.pop("source"), rows, data)


def _problems(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The errors of a suite: key and message. Only the first is reliable, since the checks after it
    assume that it does not occur."""
    rows = data.get("row")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        yield "row", "a suite has a table [[row]] for each published version"
        return
    about = {key: value for key, value in data.items() if key != "row"}
    yield from _invalid_values("", about, _EXPERIMENT, ("title", "source", "op", "dtype"))
    names: set[str] = set()
    for number, row in enumerate(rows, 1):
        place = f"row {number}: "
        yield from _invalid_values(place, row, _ROW, ("name", "kernel"))
        yield from _invalid_values(f"{place}published: ", row.get("published", {}), _PUBLISHED)
        if row["name"] in names:
            yield f"{place}name", f"{quoted(row['name'])} is used twice"
        names.add(row["name"])
        if "time_us" in row.get("published", {}) and not {"gpu", "gpu_peak_gb_s"} <= set(data):
            yield f"{place}published", "time_us requires the keys gpu and gpu_peak_gb_s"


def _invalid_values(
    place: str, values: Mapping[str, Any], rules: Mapping[str, _Rule], needed: Iterable[str] = ()
) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if key not in rules:
            yield place + key, unknown_key(key, rules)
        words, good = rules[key]
        if not good(value):
            yield place + key, f"{quoted(value)} is not {words}"
    for key in needed:
        if key not in values:
            yield place + key, "this key is missing from the suite"
