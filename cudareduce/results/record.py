"""Records and runs: the content of a result file.

Fields are in the order of the CSV's columns. A value that is unknown or was not measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cudareduce.intervals import known
from cudareduce.machine.device import DeviceInfo

#: Incremented when a field is removed or changes its meaning; a new field does not increment it.
SCHEMA = 1
#: The sources of a streamed array, and its transfer modes.
SOURCES, WAYS = ("host", "file"), ("copy", "pinned", "mapped", "pageable")
#: The kernel name of records that measure copies alone.
COPYING = "copying"
#: Right, wrong, and not tested.
VERDICTS = ("pass", "fail", "skip")


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel, library call or collective on one problem. Names carry their units; `_low` and
    `_high` are the ends of a 95 % interval.

    Verification: `error` and `bound` are in the unit of the result, `condition` is the largest
    sum|x| / |sum x| of a row. On one input `launches` launches gave `distinct` different results.
    The verdict covers `tried_launches` launches over so many sizes, patterns and schedules, and
    holds under `conditions`. `cause` is the cause of a skip: unfit, unbuilt, machine or time.

    Times: `time_us` is the median over rounds of one reduction, `noise_pct` the interquartile range
    of samples, `gb_s` 10^9 bytes per second. `joules_per_gb` is the energy of the whole GPU per
    10^9 of `bytes`, over launches back to back. `sms` is the number of SMs used, None for all.

    `chosen` is the kernel that `auto` selected, and `map` the transform of elements, C++ in `a` and
    `b`. Libraries: `called` is the call, `version` that of the library, `context` is `primary` for
    times in the rounds of libraries, in the primary context of one process. The input starts
    `offset` elements after an aligned address; `slowdown` is the time relative to `aligned_n`
    elements per row from an aligned one.

    Collectives: `kernel` is the collective, run by `engine` on `ranks` ranks with `n` elements
    each. `time_us` is that of the slowest rank from a common start, `skew_us` its distance to the
    fastest, `loop_us` the time per call of several calls back to back; `algbw_gb_s` and
    `busbw_gb_s` are as in nccl-tests, `pct_link` is the share of the bandwidth of the links. With a
    kernel instead, one array of `n` elements is sharded over `ranks`, and `local_us` is the time of
    the shards alone.

    Streamed arrays: `source` is `host` or `file`, and `way` the transfer mode: `pinned` copies
    chunks of `chunk_bytes` while the previous one is reduced, `pageable` the same from pageable
    memory, `mapped` reads host memory from the kernel, and `copy` is copying alone, to which
    `pct_ceiling` is then relative.
    """

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
    rounds_us: tuple[float | None, ...] = ()  # None: every sample of the round was lost
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
        """The operator with its transform, if there is one: sum of a * b."""
        return f"{self.op} of {self.map}" if self.map else self.op

    @property
    def unbuilt(self) -> bool:
        """Whether this is a kernel of ours that does not compile."""
        return self.cause == "unbuilt" and self.scope != "library"

    @property
    def collective(self) -> bool:
        """True if `kernel` names a collective of several ranks."""
        return self.ranks is not None and self.block is None and self.source is None

    @property
    def link_gb_s(self) -> float | None:
        """The bandwidth of the links that `pct_link` is relative to."""
        if not self.busbw_gb_s or not self.pct_link:
            return None
        return 100 * self.busbw_gb_s / self.pct_link

    @property
    def bound_gb_s(self) -> float | None:
        """The bandwidth ceiling: of a read-only kernel, or of the links for a collective."""
        return self.link_gb_s if self.collective else self.ceiling_gb_s

    @property
    def medians_us(self) -> tuple[float, ...]:
        """The round medians without lost rounds."""
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
