"""Result files that may be compared: there, whole, free of contradictions, timed on a GPU.

A file that cannot be trusted must never look like a regression, nor like the absence of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, get_args

from cudareduce.backend import TIMED_BACKENDS, BackendName
from cudareduce.errors import BaselineError, UsageError
from cudareduce.gate.plausible import implausible
from cudareduce.problem.patterns import GIVEN, PATTERNS
from cudareduce.problem.sizes import counted
from cudareduce.results.record import SOURCES, WAYS, Record, Run
from cudareduce.results.store import is_missing, load

#: What two records of one run may not share; the launch shape stands last.
IDENTITY = (
    "kernel", "op", "dtype", "acc", "n", "rows", "offset", "timing", "region", "pattern", "context",
    "sms", "map", "source", "way", "chunk_bytes", "ranks", "engine", "block", "items",
)  # fmt: skip
Identity = tuple[object, ...]
_identity = attrgetter(*IDENTITY)
_KNOWN = {
    "timing": ("cold", "warm", "cold graph", "warm graph"),
    "region": ("total", "first-pass"),
    "pattern": (*PATTERNS, GIVEN),
    "source": (None, *SOURCES),
    "way": (None, *WAYS),
    "backend": get_args(BackendName),
    "verdict": ("pass", "fail", "skip"),
}
#: The least that counts can be, of a record and of what was asked for.
_COUNTS = {"n": 0, "rows": 0, "offset": 0, "block": 1, "items": 1, "sms": 1, "bytes": 0,
           "chunk_bytes": 1, "ranks": 1}  # fmt: skip
_ASKED = {"rounds": 0, "seed": 0, "rows": 0, "block": 1, "items": 1, "flush_bytes_read": 0}
#: No number that was asked for has more bits.
_LARGEST = 2**64
#: What else of a protocol is read: lists of names, and values of one kind.
_LISTS = ("kernels", "peers", "engines")
_ONE = {"timing": str, "region": str, "graph": bool, "from": str}
_FIGURES = (
    "time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s", "pct_ceiling", "loop_us",
    "algbw_gb_s", "busbw_gb_s", "pct_link",
)  # fmt: skip
#: Of these 0 is one: a clock that is unknown, ranks that ended together.
_FROM_ZERO = ("sm_mhz", "memory_mhz", "host_us", "skew_us")
#: No measurement in microseconds, GB/s and the like lies beyond these.
_LEAST, _MOST = 1e-9, 1e15
#: How far a figure may lie from what others in its record make it.
_ROUNDING = 0.01


def identity(record: Record) -> Identity:
    """What makes a record this one and no other."""
    return tuple(_identity(record))


def problem(record: Record) -> Identity:
    """What a record is an answer to: its identity but for the launch shape."""
    return identity(record)[:-2]


def load_baseline(path: Path) -> Run:
    """The run to compare with; a missing one is a BaselineError, one without times a UsageError."""
    if is_missing(path):
        raise BaselineError(
            f"there is no baseline {path}: make it with cudareduce bench --json {path}"
        )
    run = load_timed(path)
    if all(record.time_us is None for record in run.records):
        raise UsageError(
            f"{path} holds no times to compare with: bench again, with more --max-time if it ran "
            "out of it"
        )
    return run


def load_timed(path: Path) -> Run:
    """A run of a GPU. A file that does not load, is empty, contradicts itself or comes from the CPU
    is a UsageError."""
    return timed(path, load(path))


def timed(path: Path, run: Run) -> Run:
    """A run that was read from a file, held to what `load_timed` asks of one."""
    if run.tool.get("name") != "cudareduce":
        raise UsageError(f"{path} is of {run.tool.get('name')!r}: bench with cudareduce")
    if "tuned" in run.protocol:
        raise UsageError(
            f"{path} is of cudareduce tune, which times launch shapes against each other: bench "
            "what is to be compared"
        )
    if not run.records:
        raise UsageError(f"{path} holds no records: bench again")
    if not run.device.name.strip():
        raise UsageError(f"{path} does not tell which GPU it was made on: bench again")
    unreadable = next(_unreadable(run.protocol), None)
    if unreadable:
        raise UsageError(f"{path}: protocol: {unreadable} cannot be read; bench again")
    for number, record in enumerate(run.records, 1):
        problem = next(_problems(record), None) or _too_many(record, run.protocol)
        if problem:
            raise UsageError(f"{path} contradicts itself: record {number}: {problem}; bench again")
    for number, problem in implausible(run):
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
    if all(record.backend not in TIMED_BACKENDS for record in run.records):
        raise UsageError(
            f"{path} holds answers from the CPU emulator, which have no times to compare: "
            "bench on a GPU"
        )
    return run


def _unreadable(protocol: Mapping[str, Any]) -> Iterator[str]:
    """What of a protocol a check could not repeat; what is not there is a default."""
    for name, least in _ASKED.items():
        value = protocol.get(name)
        if value is not None and (type(value) is not int or not least <= value < _LARGEST):
            yield name
    for name in _LISTS:
        value = protocol.get(name)
        if value is not None and not (type(value) is list and {str}.issuperset(map(type, value))):
            yield name
    for name, kind in _ONE.items():
        if protocol.get(name) is not None and type(protocol[name]) is not kind:
            yield name


def _too_many(record: Record, protocol: Mapping[str, Any]) -> str | None:
    """A run may have been cut short, and has no more rounds than were asked for."""
    rounds, asked = len(record.rounds_us), protocol.get("rounds")
    if not asked or rounds <= asked:
        return None
    return f"{rounds} rounds, and {counted(asked, 'was', 'were')} asked for"


def _problems(record: Record) -> Iterator[str]:
    """What cannot be true of one record."""
    for name, known in _KNOWN.items():
        if getattr(record, name) not in known:
            yield f"{name} is {getattr(record, name)!r}"
    for name, least in _COUNTS.items():
        value = getattr(record, name)
        if value is not None and value < least:
            yield f"{name} is {value}"
    for name in _FIGURES:
        value = getattr(record, name)
        if value is not None and not _LEAST < value < _MOST:
            yield f"{name} is {value}"
    for name in _FROM_ZERO:
        value = getattr(record, name)
        if value and not _LEAST < value < _MOST:
            yield f"{name} is {value}"
    rounds = record.medians_us
    if rounds and not (min(rounds) > _LEAST and max(rounds) < _MOST):
        yield "rounds_us holds what is not a time"
    if record.time_us is None:
        return
    if record.verdict != "pass":
        yield f"a time, and the verdict {record.verdict!r}"
    if record.backend not in TIMED_BACKENDS:
        yield f"a time from the backend {record.backend!r}"
    if not rounds:
        yield "a time without rounds"
    elif _differ(record.time_us, median(rounds)):
        yield f"time_us {record.time_us:g}, but the median of its rounds is {median(rounds):g}"
    if record.time_us_min is not None and record.time_us_min > record.time_us * (1 + _ROUNDING):
        yield f"time_us_min {record.time_us_min:g} is more than time_us {record.time_us:g}"
    if record.error is not None and record.bound is not None and record.error > record.bound:
        yield f"error {record.error:g} is more than its bound {record.bound:g}, and it passed"
    low, high = record.time_us_low, record.time_us_high
    if low is not None and high is not None and not low <= record.time_us <= high:
        yield f"time_us {record.time_us:g} lies outside of its interval"
    if record.bytes and record.gb_s is not None:
        implied = record.bytes / record.time_us / 1e3
        if _differ(record.gb_s, implied):
            yield f"gb_s {record.gb_s:g}, but bytes over time_us is {implied:g}"
    if record.gb_s and record.ceiling_gb_s and record.pct_ceiling:
        implied = 100 * record.gb_s / record.ceiling_gb_s
        if _differ(record.pct_ceiling, implied):
            yield f"pct_ceiling {record.pct_ceiling:g}, but of ceiling_gb_s it is {implied:g}"


def _differ(figure: float, implied: float) -> bool:
    """Whether two figures that say the same are further apart than rounding makes them."""
    return abs(implied / figure - 1) > _ROUNDING
