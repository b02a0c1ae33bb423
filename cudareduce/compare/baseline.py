"""Load runs to compare, reject inconsistent ones, and compare the machines of two runs.

An inconsistent file must produce neither a regression nor a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

from cudareduce.backends.protocol import TIMED_BACKENDS, BackendName
from cudareduce.errors import BaselineError, UsageError
from cudareduce.machine import DeviceInfo
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.patterns import GIVEN, PATTERNS
from cudareduce.reduction.sizes import counted
from cudareduce.results.record import SOURCES, WAYS, Record, Run
from cudareduce.results.store import is_missing, load

#: The fields that identify a record within a run; the launch shape comes last.
IDENTITY = (
    "kernel", "op", "dtype", "acc", "n", "rows", "offset", "timing", "region", "pattern", "context",
    "sms", "map", "source", "way", "chunk_bytes", "ranks", "engine", "block", "items",
)  # fmt: skip
Identity = tuple[object, ...]
_identity = attrgetter(*IDENTITY)


def identity(record: Record) -> Identity:
    return tuple(_identity(record))


def problem(record: Record) -> Identity:
    """The identity of a record without the launch shape."""
    return identity(record)[:-2]


def load_baseline(path: Path) -> Run:
    """Load a run to compare with. Raises BaselineError if it is missing, UsageError if it has no
    times."""
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
    """Load a run that was timed on a GPU. Raises UsageError for a file that is unreadable, empty
    or inconsistent, and for a run of the emulator or of `tune`."""
    run = load(path)
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
        raise UsageError(f"{path} does not name its GPU: bench again")
    unreadable = next(_unreadable(run.protocol), None)
    if unreadable:
        raise UsageError(f"{path}: protocol: {unreadable} cannot be read; bench again")
    for number, wrong in _contradictions(run):
        raise UsageError(f"{path} contradicts itself: record {number}: {wrong}; bench again")
    if all(record.backend not in TIMED_BACKENDS for record in run.records):
        raise UsageError(
            f"{path} holds results from the CPU emulator, which have no times to compare: "
            "bench on a GPU"
        )
    return run


#: Fields of the protocol: lower limits of counts, lists of names, and single values by type.
_REQUESTED = {"rounds": 0, "seed": 0, "rows": 0, "block": 1, "items": 1, "flush_bytes_read": 0}
_LISTS = ("kernels", "peers", "engines")
_ONE = {"timing": str, "region": str, "graph": bool, "from": str}


def _unreadable(protocol: Mapping[str, Any]) -> Iterator[str]:
    """Names of protocol fields whose values a check could not repeat. A missing field has a
    default."""
    for name, value in protocol.items():
        if value is None:
            continue
        if name in _REQUESTED and (type(value) is not int or not _REQUESTED[name] <= value < 2**64):
            yield name
        if name in _LISTS and not (type(value) is list and {str}.issuperset(map(type, value))):
            yield name
        if name in _ONE and type(value) is not _ONE[name]:
            yield name


def _contradictions(run: Run) -> Iterator[tuple[int, str]]:
    """Contradictions within a stored run, with the number (from 1) of the record: with itself, the
    protocol, the device or another record."""
    requested, seen = run.protocol.get("rounds"), set[Identity]()
    for number, record in enumerate(run.records, 1):
        yield from ((number, wrong) for wrong in _record_problems(record))
        rounds = len(record.rounds_us)
        if requested and rounds > requested:
            yield number, f"{rounds} rounds, and {counted(requested, 'was', 'were')} requested"
    for number, record in enumerate(run.records, 1):
        yield from ((number, wrong) for wrong in _protocol_problems(record, run))
    graph = run.protocol.get("graph")
    if graph and not any(record.timing.endswith("graph") for record in run.records):
        timing = run.records[0].timing
        yield 1, f"timing is {timing}, and the run replayed graphs, of which none is here"
    for number, record in enumerate(run.records, 1):
        if identity(record) in seen:
            yield number, f"it is a second one of {record.kernel} for the same problem"
        seen.add(identity(record))


_KNOWN = {
    "timing": ("cold", "warm", "cold graph", "warm graph"),
    "region": ("total", "first-pass"),
    "pattern": (*PATTERNS, GIVEN),
    "source": (None, *SOURCES),
    "way": (None, *WAYS),
    "backend": get_args(BackendName),
    "verdict": ("pass", "fail", "skip"),
}
#: Lower limits of counts.
_COUNTS = {"n": 0, "rows": 0, "offset": 0, "block": 1, "items": 1, "sms": 1, "bytes": 0,
           "chunk_bytes": 1, "ranks": 1}  # fmt: skip
_FIGURES = (
    "time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s", "pct_ceiling", "loop_us",
    "algbw_gb_s", "busbw_gb_s", "pct_link",
)  # fmt: skip
#: Figures that may be 0: an unknown clock, ranks that end together.
_FROM_ZERO = ("sm_mhz", "memory_mhz", "host_us", "skew_us")
#: Plausible range of times in us and rates in GB/s.
_LEAST, _MOST = 1e-9, 1e15


def _record_problems(record: Record) -> Iterator[str]:
    """Contradictions within one record."""
    if not record.kernel.strip():
        yield "it does not name its kernel"
    values = [(name, getattr(record, name)) for name in (*_KNOWN, *_COUNTS, *_FIGURES, *_FROM_ZERO)]
    for name, value in values:
        unknown = name in _KNOWN and value not in _KNOWN[name]
        below = name in _COUNTS and value is not None and value < _COUNTS[name]
        figure = value is not None if name in _FIGURES else name in _FROM_ZERO and value
        if unknown or below or (figure and not _LEAST < value < _MOST):
            yield f"{name} is {value!r}"
    rounds, us = record.medians_us, record.time_us
    if rounds and not (min(rounds) > _LEAST and max(rounds) < _MOST):
        yield "rounds_us holds a number that is no time"
    if us is None:
        return
    if record.verdict != "pass":
        yield f"a time, and the verdict {record.verdict!r}"
    if record.backend not in TIMED_BACKENDS:
        yield f"a time from the backend {record.backend!r}"
    if not rounds:
        yield "a time without rounds"
    elif _differ(us, median(rounds)):
        yield f"time_us {us:g}, but the median of its rounds is {median(rounds):g}"
    if record.time_us_min is not None and _differ(us, max(us, record.time_us_min)):
        yield f"time_us_min {record.time_us_min:g} is more than time_us {us:g}"
    if record.error is not None and record.bound is not None and record.error > record.bound:
        yield f"error {record.error:g} is more than its bound {record.bound:g}, and it passed"
    low, high = record.time_us_low, record.time_us_high
    if low is not None and high is not None and not low <= us <= high:
        yield f"time_us {us:g} is outside of its interval"
    if record.bytes and record.gb_s is not None:
        implied = record.bytes / us / 1e3
        if _differ(record.gb_s, implied):
            yield f"gb_s {record.gb_s:g}, but bytes over time_us is {implied:g}"
    if record.gb_s and record.ceiling_gb_s and record.pct_ceiling:
        implied = 100 * record.gb_s / record.ceiling_gb_s
        if _differ(record.pct_ceiling, implied):
            yield f"pct_ceiling {record.pct_ceiling:g}, but of ceiling_gb_s it is {implied:g}"


def _differ(figure: float, implied: float) -> bool:
    """Whether two figures for the same quantity differ by more than rounding, 1 %."""
    return abs(implied / figure - 1) > 0.01


#: Plausible bandwidth as a factor of the peak: of cold reads (clocks are rounded, and part of a
#: short input may be cached), and of reads from the cache.
_OVER_PEAK, _CACHED = 1.25, 30.0
#: Largest size of a result or partial result in bytes.
_WIDEST = 16


def _protocol_problems(record: Record, run: Run) -> Iterator[str]:
    """Contradictions between a record and its run: the protocol, the size, the memory bandwidth."""
    protocol, device = run.protocol, run.device
    timing = record.timing.split()[0] if record.timing else ""
    parts = str(protocol.get("timing") or "").split(",")
    timings = [words[0] for part in parts if (words := part.split())]
    if timings and timing not in timings:
        yield f"timing is {record.timing}, and the run's is {', '.join(timings)}"
    if isinstance(region := protocol.get("region"), str) and record.region != region:
        yield f"region is {record.region}, and the run's is {region}"
    if protocol.get("graph") is False and record.timing.endswith("graph"):
        yield f"timing is {record.timing}, and the run replayed no graph"
    if record.time_us is None:
        return
    flushed = protocol.get("flush_bytes_read")
    if timing == "cold" and flushed is not None and flushed < max(1, device.l2_bytes or 1):
        yield f"a cold time, and a flush of {flushed} bytes, which is less than the cache"
    dtype = DTYPES.get(record.dtype)
    if dtype is not None and record.bytes is not None:
        # Each input is read once, and there are at most two.
        least = record.n * record.rows * dtype.size
        most = 2 * least + _WIDEST * (record.rows + (record.grid or 0))
        if not least <= record.bytes <= most:
            what = f"{record.n} elements" + (f" in {record.rows} rows" * (record.rows != 1))
            yield f"bytes is {record.bytes}, and {what} of {record.dtype} are {least}"
    peak = (device.peak_gb_s or 0.0) * (record.ranks or 1)
    for name, value in (("gb_s", record.gb_s), ("ceiling_gb_s", record.ceiling_gb_s)):
        if peak and value and value > peak * (_OVER_PEAK if timing == "cold" else _CACHED):
            yield f"{name} is {value:.4g}, and its memory brings {peak:.4g} at most"


#: Fields that must match: another value means another machine.
STRICT = {
    "name": "GPU",
    "cc": "compute capability",
    "sm_count": "number of SMs",
    "l2_bytes": "L2 size",
    "memory_clock_khz": "memory clock",
    "bus_bits": "memory width",
    "ecc": "ECC",
    "mig": "MIG",
    "power_limit_w": "power limit",
}
#: Fields whose difference is a warning only.
LOOSE = {"driver": "driver", "cuda": "CUDA", "nvcc": "nvcc"}


@dataclass(frozen=True, slots=True)
class Match:
    """Descriptions of the differences between two machines. `other_card`: another card or model, so
    only shares of each card's ceiling can be compared."""

    differences: tuple[str, ...]
    warnings: tuple[str, ...]
    other_card: bool


def match(old: DeviceInfo, new: DeviceInfo) -> Match:
    """Compare two machines. A field that one run lacks is a warning, not a difference."""
    differences: list[str] = []
    warnings: list[str] = []
    fields = [(field, words, getattr(old, field), getattr(new, field))
              for field, words in (STRICT | LOOSE).items()]  # fmt: skip
    for side, missing in (
        ("the baseline", [words for _, words, a, b in fields if a is None and b is not None]),
        ("the new run", [words for _, words, a, b in fields if b is None and a is not None]),
    ):
        if missing:
            warnings.append(f"{side} lacks the {', '.join(missing)}: assumed to be the same")
    for field, words, before, after in fields:
        if before is None or after is None or _same(before, after):
            continue
        text = f"{words} {_text(before)}, now {_text(after)}"
        (differences if field in STRICT else warnings).append(text)
    other = old.uuid is not None and new.uuid is not None and old.uuid != new.uuid
    if (old.uuid is None) != (new.uuid is None):
        warnings.append("only one run names its card: assumed to be the same")
    return Match(tuple(differences), tuple(warnings), other or bool(differences))


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return abs(before - after) < 0.5  # watts; drivers round
    return bool(before == after)


def _text(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def side_text(words: str, run: Run) -> str:
    """One side of a comparison in a line: date, version, card, rounds, flush."""
    tool, device = run.tool, run.device
    parts = [_date(run), f"cudareduce {tool.get('version')}", device.name]
    if tool.get("git"):
        parts[1] += f" at {tool['git']}"
    if device.uuid:
        parts[2] += f" {device.uuid[: len('GPU-') + 8]}"
    if requested := run.protocol.get("rounds"):
        rounds = counted(requested, "round")
        measured = {len(record.rounds_us) for record in run.records if record.time_us is not None}
        if measured - {requested}:  # the run was cut short
            least, most = min(measured), max(measured)
            rounds = f"{least if least == most else f'{least} to {most}'} of {rounds}"
        parts.append(rounds)
    if run.protocol.get("flush_bytes_read"):
        parts.append(f"flush of {_flush(run)}")
    return f"{words}: {', '.join(parts)}"


def _moment(run: Run) -> datetime | None:
    try:
        return datetime.fromisoformat(run.created).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _date(run: Run) -> str:
    moment = _moment(run)
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else run.created or "no date"


def _flush(run: Run) -> str:
    flushed = run.protocol["flush_bytes_read"]
    return f"{flushed / 2**20:g} MiB" if isinstance(flushed, int) else str(flushed)


def order_notes(old: Run, new: Run, names: tuple[Path, Path]) -> list[str]:
    """A warning if the new run was made before the old one; `names` are their files."""
    before, after = _moment(old), _moment(new)
    if before is None or after is None or before <= after:
        return []
    return [
        f"WARNING: {names[1]} ({_date(new)}) is older than {names[0]} ({_date(old)}): the order is "
        f"compare OLD NEW, so run compare {names[1]} {names[0]}"
    ]


def protocol_differences(old: Run, new: Run) -> list[str]:
    """The differences between the protocols of two runs, as notes."""
    before, after = (
        {
            "flush of": _flush(run) if run.protocol.get("flush_bytes_read") else None,
            "timing": run.protocol.get("timing"),
            "region": run.protocol.get("region"),
            "graphs": {True: "replayed", False: "none"}.get(run.protocol.get("graph", "")),
        }
        for run in (old, new)
    )
    differences = [
        f"{what} {before[what]}, now {after[what]}"
        for what in before if before[what] and after[what] and before[what] != after[what]
    ]  # fmt: skip
    return [f"measured differently: {'; '.join(differences)}"] if differences else []


def copied_rounds(old: Run, new: Run) -> tuple[int, int]:
    """Count the cases whose rounds in `new` are the same as in `old` or proportional to them, which
    no two measurements have, and all cases that both runs timed."""
    before = {identity(record): record.medians_us for record in old.records}
    both = [
        (np.log(before[key]), np.log(record.medians_us))
        for record in new.records
        if (key := identity(record)) in before and len(before[key]) >= _FEWEST_COPIED
    ]
    both = [(a, b) for a, b in both if np.ptp(a)]
    same = (len(a) == len(b) and np.ptp(b - a) <= _COPIED * np.ptp(a) for a, b in both)
    return sum(map(bool, same)), len(both)


#: The fewest rounds that tell a copy, and how far logarithms of proportional rounds may differ by
#: rounding, as a share of their range.
_FEWEST_COPIED, _COPIED = 3, 0.02
