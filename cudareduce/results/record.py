"""Records and runs: the content of a result file.

Fields are in the order of the CSV's columns. A value that is unknown or was not measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cudareduce.intervals import known
from cudareduce.machine import DeviceInfo

#: Incremented when a field is removed or changes its meaning; a new field does not increment it.
SCHEMA = 1
#: The possible sources of a streamed array, and the transfer modes.
SOURCES, WAYS = ("host", "file"), ("copy", "pinned", "mapped", "pageable")
#: The kernel name of records that measure copies alone.
COPYING = "copying"
#: Each verdict on a result, the word that tables print for it, and its meaning.
MEANINGS = {
    "pass": ("right", "every tested result is within the error bound"),
    "fail": ("WRONG", "a result is wrong, or a launch failed; there is no time"),
    "skip": ("-", "not tested; `reason` and `cause` say why"),
}
VERDICTS = tuple(MEANINGS)


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel, library call or collective on one problem. `schema.FIELDS` describes each field.
    Names carry their units; `_low` and `_high` are the ends of a 95 % interval."""

    kernel: str
    op: str
    dtype: str
    acc: str
    n: int
    rows: int
    block: int | None
    items: int | None
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
    error_ulp: float | None = None
    pct_bound: float | None = None
    condition: float | None = None
    distinct: int | None = None
    launches: int | None = None
    time_us: float | None = None
    time_us_low: float | None = None
    time_us_high: float | None = None
    time_us_min: float | None = None
    noise_pct: float | None = None
    samples: int | None = None
    discarded: int | None = None
    batch: int | None = None
    host_us: float | None = None
    rounds_us: tuple[float | None, ...] = ()  # median of each round; None: all samples were lost
    bytes: int | None = None
    gb_s: float | None = None
    gb_s_low: float | None = None
    gb_s_high: float | None = None
    pct_peak: float | None = None
    ceiling_gb_s: float | None = None
    pct_ceiling: float | None = None
    baseline: str | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speedup_prev: float | None = None
    speedup_prev_low: float | None = None
    speedup_prev_high: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    event_reasons: str | None = None
    suite: str | None = None
    name: str | None = None
    source_sha: str | None = None
    cubin_sha: str | None = None
    tried_sizes: int | None = None
    tried_patterns: int | None = None
    tried_schedules: int | None = None
    tried_launches: int | None = None
    cause: str | None = None
    called: str | None = None
    version: str | None = None
    context: str | None = None
    offset: int = 0
    aligned_n: int | None = None
    slowdown: float | None = None
    slowdown_low: float | None = None
    slowdown_high: float | None = None
    sms: int | None = None
    joules_per_gb: float | None = None
    chosen: str | None = None
    map: str | None = None
    conditions: tuple[str, ...] = ()
    ranks: int | None = None
    engine: str | None = None
    skew_us: float | None = None
    local_us: float | None = None
    loop_us: float | None = None
    algbw_gb_s: float | None = None
    busbw_gb_s: float | None = None
    pct_link: float | None = None
    source: str | None = None
    way: str | None = None
    chunk_bytes: int | None = None

    @property
    def reduced(self) -> str:
        """The operator, with the transform if there is one: `sum of a * b`."""
        return f"{self.op} of {self.map}" if self.map else self.op

    @property
    def unbuilt(self) -> bool:
        """True if the record is of a kernel of this package that does not compile."""
        return self.cause == "unbuilt" and self.scope != "library"

    @property
    def collective(self) -> bool:
        """True if the record is of a collective operation of several ranks."""
        return self.ranks is not None and self.block is None and self.source is None

    @property
    def link_gb_s(self) -> float | None:
        """The link bandwidth in GB/s to which `pct_link` is relative."""
        if not self.busbw_gb_s or not self.pct_link:
            return None
        return 100 * self.busbw_gb_s / self.pct_link

    @property
    def bound_gb_s(self) -> float | None:
        """The bandwidth ceiling in GB/s: that of a read-only kernel, or of the links for a
        collective."""
        return self.link_gb_s if self.collective else self.ceiling_gb_s

    @property
    def medians_us(self) -> tuple[float, ...]:
        """The medians of the rounds that have samples."""
        return known(self.rounds_us)


#: CSV columns: every field but the list of round medians.
COLUMNS = tuple(f.name for f in fields(Record) if f.name != "rounds_us")


@dataclass(frozen=True, slots=True)
class Run:
    """The content of one result file."""

    tool: Mapping[str, Any]
    device: DeviceInfo
    protocol: Mapping[str, Any]
    records: tuple[Record, ...]
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: int = SCHEMA
