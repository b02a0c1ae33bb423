"""Loads runs to compare, refuses inconsistent ones, and matches the machines of two runs.

A file that cannot be trusted must not look like a regression, nor like the absence of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any, get_args

from cudareduce.backend import TIMED_BACKENDS, BackendName
from cudareduce.errors import BaselineError, UsageError
from cudareduce.machine.device import DeviceInfo
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.patterns import GIVEN, PATTERNS
from cudareduce.problem.sizes import counted
from cudareduce.results.record import SOURCES, WAYS, Record, Run
from cudareduce.results.store import is_missing, load

#: How far a cold read may exceed peak bandwidth: clocks are rounded, and part of a short input may
#: be cached.
_OVER_PEAK = 1.25
#: How much faster than memory a cache can be.
_CACHED = 30.0
#: The most bytes of a result or partial result.
_WIDEST = 16


def implausible(run: Run) -> Iterator[tuple[int, str]]:
    """The numbers (from 1) of records that contradict the protocol, the device or their sizes, with
    the reason."""
    timings = _words(run.protocol, "timing")
    region, graph = run.protocol.get("region"), run.protocol.get("graph")
    flushed = run.protocol.get("flush_bytes_read")
    for number, record in enumerate(run.records, 1):
        timing = record.timing.split()[0] if record.timing else ""
        if timings and timing not in timings:
            yield number, f"timing is {record.timing}, and the run's is {', '.join(timings)}"
        if isinstance(region, str) and record.region != region:
            yield number, f"region is {record.region}, and the run's is {region}"
        if graph is False and record.timing.endswith("graph"):
            yield number, f"timing is {record.timing}, and the run replayed no graph"
        if record.time_us is None:
            continue
        if timing == "cold" and flushed is not None and not _displaces(flushed, run.device):
            yield number, f"a cold time, and a flush of {flushed} bytes, which displaces no cache"
        yield from ((number, what) for what in _sizes(record))
        yield from ((number, what) for what in _speed(record, run.device, timing == "cold"))

    if graph and not any(record.timing.endswith("graph") for record in run.records):
        timing = run.records[0].timing
        yield 1, f"timing is {timing}, and the run replayed graphs, of which none is here"


def _words(protocol: Mapping[str, Any], name: str) -> list[str]:
    value = protocol.get(name)
    parts = value.split(",") if isinstance(value, str) else []
    return [words[0] for part in parts if (words := part.split())]


def _displaces(flushed: Any, device: DeviceInfo) -> bool:
    """Whether reading so many bytes flushes the cache."""
    return isinstance(flushed, int) and flushed >= max(1, device.l2_bytes or 1)


def _sizes(record: Record) -> Iterator[str]:
    """Byte counts that do not match the number of elements: each input is read once, and there are
    at most two."""
    dtype = DTYPES.get(record.dtype)
    if dtype is None or record.bytes is None:
        return
    least = record.n * record.rows * dtype.size
    most = 2 * least + _WIDEST * (record.rows + (record.grid or 0))
    if not least <= record.bytes <= most:
        what = f"{record.n} elements" + (f" in {record.rows} rows" if record.rows != 1 else "")
        yield f"bytes is {record.bytes}, and {what} of {record.dtype} are {least}"


def _speed(record: Record, device: DeviceInfo, cold: bool) -> Iterator[str]:
    """Rates beyond the memory bandwidth of the device, one device per rank."""
    if not device.peak_gb_s:
        return
    peak = device.peak_gb_s * (record.ranks or 1)
    most = peak * (_OVER_PEAK if cold else _CACHED)
    for name, value in (("gb_s", record.gb_s), ("ceiling_gb_s", record.ceiling_gb_s)):
        if value and value > most:
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
    """The differences between two machines in words. `other_card`: another card or model, so only
    shares of each card's ceiling can be compared."""

    differences: tuple[str, ...]
    warnings: tuple[str, ...]
    other_card: bool


def match(old: DeviceInfo, new: DeviceInfo) -> Match:
    """Compare two machines. A field that one run lacks is a warning, not a difference."""
    differences: list[str] = []
    warnings = _missing_fields(old, new)
    for field, words in (STRICT | LOOSE).items():
        before, after = getattr(old, field), getattr(new, field)
        if before is None or after is None or _same(before, after):
            continue
        text = f"{words} {_text(before)}, now {_text(after)}"
        (differences if field in STRICT else warnings).append(text)
    other = old.uuid is not None and new.uuid is not None and old.uuid != new.uuid
    if (old.uuid is None) != (new.uuid is None):
        warnings.append("only one run knows which card it was made on: taken for the same")
    return Match(tuple(differences), tuple(warnings), other or bool(differences))


def _missing_fields(old: DeviceInfo, new: DeviceInfo) -> list[str]:
    """Fields that only one of two runs has."""
    found = []
    for side, silent, other in (("the baseline", old, new), ("the new run", new, old)):
        missing = [
            words
            for field, words in (STRICT | LOOSE).items()
            if getattr(silent, field) is None and getattr(other, field) is not None
        ]
        if missing:
            found.append(f"{side} does not tell the {', '.join(missing)}: taken for the same")
    return found


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, float) and isinstance(after, float):
        return abs(before - after) < 0.5  # watts; drivers round
    return bool(before == after)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


#: The fields that identify a record within a run; the launch shape comes last.
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
#: Lower limits of counts in records and in the protocol.
_COUNTS = {"n": 0, "rows": 0, "offset": 0, "block": 1, "items": 1, "sms": 1, "bytes": 0,
           "chunk_bytes": 1, "ranks": 1}  # fmt: skip
_ASKED = {"rounds": 0, "seed": 0, "rows": 0, "block": 1, "items": 1, "flush_bytes_read": 0}
#: Upper limit of numbers in the protocol.
_LARGEST = 2**64
#: Other fields of the protocol: lists of names, and single values by type.
_LISTS = ("kernels", "peers", "engines")
_ONE = {"timing": str, "region": str, "graph": bool, "from": str}
_FIGURES = (
    "time_us", "time_us_low", "time_us_high", "gb_s", "ceiling_gb_s", "pct_ceiling", "loop_us",
    "algbw_gb_s", "busbw_gb_s", "pct_link",
)  # fmt: skip
#: Figures that may be 0: an unknown clock, ranks that end together.
_FROM_ZERO = ("sm_mhz", "memory_mhz", "host_us", "skew_us")
#: Plausible range of times in us and rates in GB/s.
_LEAST, _MOST = 1e-9, 1e15
#: Relative tolerance between figures for the same quantity.
_ROUNDING = 0.01


def identity(record: Record) -> Identity:
    """The fields that identify a record within a run."""
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
    """Load a run of a GPU. Raises UsageError if it cannot be read, is empty, contradicts itself or
    comes from the emulator."""
    return timed(path, load(path))


def timed(path: Path, run: Run) -> Run:
    """Check a loaded run as `load_timed` does."""
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
    """Fields of a protocol that a check could not repeat. Missing ones have defaults."""
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
    """More rounds in a record than were requested. A run may be cut short and have fewer."""
    rounds, asked = len(record.rounds_us), protocol.get("rounds")
    if not asked or rounds <= asked:
        return None
    return f"{rounds} rounds, and {counted(asked, 'was', 'were')} asked for"


def _problems(record: Record) -> Iterator[str]:
    """Contradictions within one record."""
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
    """Whether two figures for the same quantity differ by more than rounding."""
    return abs(implied / figure - 1) > _ROUNDING


def side_text(words: str, run: Run) -> str:
    """One side of a comparison in a line: date, version, card, rounds, flush."""
    tool, device = run.tool, run.device
    parts = [_when(run.created), f"cudareduce {tool.get('version')}", device.name]
    if tool.get("git"):
        parts[1] += f" at {tool['git']}"
    if device.uuid:
        parts[2] += f" {device.uuid[: len('GPU-') + 8]}"
    if run.protocol.get("rounds"):
        parts.append(_rounds(run))
    if run.protocol.get("flush_bytes_read"):
        parts.append(f"flush of {_flush(run)}")
    return f"{words}: {', '.join(parts)}"


def _when(created: str) -> str:
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return created or "no date"


def _flush(run: Run) -> str:
    flushed = run.protocol["flush_bytes_read"]
    return f"{flushed / 2**20:g} MiB" if isinstance(flushed, int) else str(flushed)


def _rounds(run: Run) -> str:
    """The rounds requested, and how many there are where a run was cut short."""
    asked = run.protocol["rounds"]
    there = {len(record.rounds_us) for record in run.records if record.time_us is not None}
    if not there or there == {asked}:
        return f"{counted(asked, 'round')}"
    least, most = min(there), max(there)
    return f"{least if least == most else f'{least} to {most}'} of {counted(asked, 'round')}"


def protocol_differences(old: Run, new: Run) -> list[str]:
    """The differences between the protocols of two runs, as notes."""
    before, after = _ways(old), _ways(new)
    told = [
        f"{what} {before[what]}, now {after[what]}"
        for what in before if what in after and before[what] != after[what]
    ]  # fmt: skip
    return [f"measured otherwise: {'; '.join(told)}"] if told else []


def _ways(run: Run) -> dict[str, str]:
    """The protocol of a run as far as it is stored."""
    protocol = run.protocol
    ways = {
        "flush of": _flush(run) if protocol.get("flush_bytes_read") else None,
        "timing": protocol.get("timing"),
        "region": protocol.get("region"),
        "graphs": {True: "replayed", False: "none"}.get(protocol.get("graph", "")),
    }
    return {what: way for what, way in ways.items() if way}


def same_run(old: Run, new: Run) -> bool:
    """Whether both are the same measurement: no two measurements agree in every round that both
    have."""
    before = {identity(record): record.rounds_us for record in old.records if record.rounds_us}
    both = [
        (before[key], record.rounds_us)
        for record in new.records if (key := identity(record)) in before and record.rounds_us
    ]  # fmt: skip
    return bool(both) and all(a == b for a, b in both)
