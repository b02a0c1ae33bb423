"""Result files that may be compared: there, whole, free of contradictions, timed on a GPU.

A file that cannot be trusted must never look like a regression, nor like the absence of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

from cudareduce.errors import BaselineError, UsageError
from cudareduce.record import Record, Run
from cudareduce.store import load

#: What two records of one run may not share; the launch shape stands last.
IDENTITY = (
    "kernel", "op", "dtype", "acc", "n", "rows", "timing", "region", "pattern", "block", "items",
)  # fmt: skip
Identity = tuple[object, ...]
_identity = attrgetter(*IDENTITY)
_WORDS = ("kernel", "op", "dtype", "acc", "timing", "region", "pattern", "backend", "verdict")
_COUNTS = ("n", "rows", "block", "items")
_FIGURES = ("time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s")
#: What a byte count over a time may differ from the bandwidth beside it.
_ROUNDING = 0.01


def identity(record: Record) -> Identity:
    """What makes a record this one and no other."""
    return tuple(_identity(record))


def problem(record: Record) -> Identity:
    """What a record is an answer to: its identity but for the launch shape."""
    return identity(record)[:-2]


def load_baseline(path: Path) -> Run:
    """The run to compare with; a missing one has an exit code of its own."""
    if not path.exists():
        raise BaselineError(
            f"there is no baseline {path}: make it with cudareduce bench --json {path}"
        )
    return load_timed(path)


def load_timed(path: Path) -> Run:
    """A run with times from a GPU."""
    run = load(path)
    if not run.records:
        raise UsageError(f"{path} holds no records: bench again")
    if not isinstance(run.protocol, dict) or not all(
        run.protocol.get(name) is None or _whole(run.protocol[name], 0)
        for name in ("rounds", "seed", "block", "items")
    ):
        raise UsageError(f"{path}: its protocol cannot be read; bench again")
    for number, record in enumerate(run.records, 1):
        problem = next(_problems(record), None)
        if problem:
            raise UsageError(f"{path} contradicts itself: record {number}: {problem}; bench again")
    seen: set[Identity] = set()
    for number, record in enumerate(run.records, 1):
        key = identity(record)
        if key in seen:
            raise UsageError(
                f"{path} contradicts itself: record {number} is a second one of {record.kernel} "
                f"for the same problem; bench again"
            )
        seen.add(key)
    if all(record.backend != "cuda" for record in run.records):
        raise UsageError(
            f"{path} holds answers from the CPU emulator, which have no times to compare: "
            "bench on a GPU"
        )
    return run


def _problems(record: Record) -> Iterator[str]:
    """What cannot be true of one record."""
    for name in _WORDS:
        if not isinstance(getattr(record, name), str):
            yield f"{name} is not a text"
    for name in _COUNTS:
        value = getattr(record, name)
        if not _whole(value, 1 if name in ("block", "items") else 0):
            yield f"{name} is {value!r}"
    for name in _FIGURES:
        value = getattr(record, name)
        if value is not None and not _positive(value):
            yield f"{name} is {value!r}"
    if not all(_positive(value) for value in record.rounds_us):
        yield "rounds_us holds what is not a time"
    if record.verdict not in ("pass", "fail", "skip"):
        yield f"verdict is {record.verdict!r}"
    if record.time_us is None:
        return
    if record.verdict != "pass":
        yield f"a time, and the verdict {record.verdict!r}"
    if record.backend != "cuda":
        yield f"a time from the backend {record.backend!r}"
    if not record.rounds_us:
        yield "a time without rounds"
    elif not min(record.rounds_us) <= record.time_us <= max(record.rounds_us):
        yield f"time_us {record.time_us:g} lies outside of its rounds"
    low, high = record.time_us_low, record.time_us_high
    if low is not None and high is not None and not low <= record.time_us <= high:
        yield f"time_us {record.time_us:g} lies outside of its interval"
    if record.bytes and record.gb_s is not None:
        implied = record.bytes / record.time_us / 1e3
        if abs(implied / record.gb_s - 1) > _ROUNDING:
            yield f"gb_s {record.gb_s:g}, but bytes over time_us is {implied:g}"


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _positive(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and value > 0
