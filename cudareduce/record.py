"""A record: one kernel on one problem, as it is stored and printed. A run: all of them.

Fields are in the order of the CSV's columns. What is not known, or was not measured, is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from statistics import median
from typing import Any

from cudareduce.backend import DeviceInfo
from cudareduce.measure import Timing, interval
from cudareduce.plan import Plan
from cudareduce.verify import Verdict

#: Raised when a field changes its meaning or goes; new fields do not raise it.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a result."""

    kernel: str
    op: str
    dtype: str
    acc: str
    n: int
    rows: int
    block: int
    items: int
    grid: int | None
    passes: int | None
    backend: str
    scope: str
    timing: str
    region: str
    pattern: str
    verdict: str
    reason: str
    error: float | None = None
    bound: float | None = None
    time_us: float | None = None
    time_us_low: float | None = None
    time_us_high: float | None = None
    time_us_min: float | None = None
    noise_pct: float | None = None
    samples: int | None = None
    discarded: int | None = None
    rounds_us: tuple[float, ...] = ()
    bytes: int | None = None
    gb_s: float | None = None
    pct_peak: float | None = None
    ceiling_gb_s: float | None = None
    pct_ceiling: float | None = None
    baseline: str | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_prev: float | None = None
    suite: str | None = None
    name: str | None = None
    source_sha: str | None = None
    cubin_sha: str | None = None


#: CSV columns: every field but the list of round medians.
COLUMNS = tuple(f.name for f in fields(Record) if f.name != "rounds_us")


@dataclass(frozen=True, slots=True)
class Run:
    """One result file: what was run, on what, how, and what came out."""

    tool: Mapping[str, Any]
    device: DeviceInfo
    protocol: Mapping[str, Any]
    records: tuple[Record, ...]
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Denominators:
    """What bandwidth is compared with: theory, and the read-only ceiling of the same rounds."""

    peak_gb_s: float | None
    ceiling_gb_s: float | None


def timing_fields(
    plan: Plan, timing: Timing, over: Denominators, cubin_sha: str | None
) -> dict[str, Any]:
    """The fields of a record that a measurement fills. GB = 10^9 bytes."""
    gb_s = plan.bytes_moved / timing.median_us / 1e3
    low, high = timing.interval_us or (None, None)

    def percent(whole: float | None) -> float | None:
        return 100 * gb_s / whole if whole else None

    return {
        "time_us": timing.median_us,
        "time_us_low": low,
        "time_us_high": high,
        "time_us_min": timing.min_us,
        "noise_pct": timing.noise_pct,
        "samples": timing.samples,
        "discarded": timing.discarded,
        "rounds_us": timing.rounds_us,
        "bytes": plan.bytes_moved,
        "gb_s": gb_s,
        "pct_peak": percent(over.peak_gb_s),
        "ceiling_gb_s": over.ceiling_gb_s,
        "pct_ceiling": percent(over.ceiling_gb_s),
        "cubin_sha": cubin_sha,
    }


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster than another entrant, formed round by round."""

    ratio: float
    low: float | None
    high: float | None


def speedup(old: Timing, new: Timing) -> Speedup:
    """Rounds of the two are pairs: what moves both in a round cancels."""
    pairs = zip(old.rounds_us, new.rounds_us, strict=False)
    ratios = [before / after for before, after in pairs]
    low, high = interval(ratios) or (None, None)
    return Speedup(median(ratios), low, high)


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """The fields of a record that verification fills."""
    return {
        "verdict": verdict.outcome,
        "reason": verdict.reason,
        "error": verdict.error,
        "bound": verdict.bound,
    }
