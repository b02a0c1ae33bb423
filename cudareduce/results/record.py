"""A record: one kernel on one problem, as it is stored and printed. A run: all of them.

Fields are in the order of the CSV's columns. What is not known, or was not measured, is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cudareduce.intervals import known
from cudareduce.machine.device import DeviceInfo

#: Raised when a field changes its meaning or goes; new fields do not raise it.
SCHEMA = 1
#: Where an array that is streamed lies, and the ways that it takes.
SOURCES, WAYS = ("host", "file"), ("copy", "pinned", "mapped", "pageable")
#: Under this name copies are measured that no kernel follows.
COPYING = "copying"
#: Right, wrong, and not tried.
VERDICTS = ("pass", "fail", "skip")


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a result. Names carry their units; a `low` and a `high` are the ends of a 95 %
    interval.

    `error` and `bound` are in the unit of the answer, `condition` is the largest sum|x| / |sum x|
    of a row. On one input `launches` gave `distinct` different answers; the verdict rests on
    `tried_launches` in all, at so many sizes, with so many patterns and schedules; `cause` is that
    of a skip: unfit, unbuilt, machine or time. `time_us` is the
    median over rounds of one reduction, `noise_pct` the interquartile range of samples; `gb_s` is
    10^9 bytes a second. Of a library `called` is the very call and `version` its own; `context` is
    `primary` for what was timed beside libraries in the primary context of one process. The input
    starts `offset` elements behind an aligned address; `slowdown` is how many times longer it takes
    so, or with one element more, than `aligned_n` elements a row do from an aligned one. On `sms`
    SMs at most it worked by launching no more blocks; None is all of them. `joules_per_gb` is the
    whole GPU's energy over 10^9 of `bytes`, while launches followed each other.
    Where `kernel` is `auto`, `chosen` is the kernel that it took. What is reduced is what `map`
    makes of elements, C++ in `a` and, of a second array, `b`; None is the elements themselves. A
    verdict holds on `conditions`, in words that follow `right if`.
    Of a collective, which `kernel` then names, `engine` did it among `ranks` that hold `n` elements
    each; `time_us` is the slowest rank's from a common start, `skew_us` how far behind the quickest
    that was, `loop_us` what one of several calls back to back took. `algbw_gb_s` and `busbw_gb_s`
    are as nccl-tests defines them, `pct_link` the latter's share of what the links carried;
    `chosen` is what `peer:auto` took. Where `kernel` is a kernel, the `n` elements of one array lay
    on all `ranks`, and `local_us` is what their shares took in the same rounds, combined by nobody.
    Where `source` is `host` or `file`, the array lay in the host's memory or in a file, and `way`
    is how it came to the kernel: `pinned`, copied in chunks of `chunk_bytes` while the one before
    is reduced, `pageable`, the same from memory that is not kept in place, `mapped`, read by the
    kernel where it lies; `copy` is copying alone, of which `pct_ceiling` is then a share.
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
        """The operator, and what the map makes of elements where there is one: sum of a * b."""
        return f"{self.op} of {self.map}" if self.map else self.op

    @property
    def unbuilt(self) -> bool:
        """Whether it is a kernel, and no library's, that does not compile."""
        return self.cause == "unbuilt" and self.scope != "library"

    @property
    def collective(self) -> bool:
        """True if `kernel` names a collective of several ranks."""
        return self.ranks is not None and self.block is None and self.source is None

    @property
    def link_gb_s(self) -> float | None:
        """What `pct_link` is a share of."""
        if not self.busbw_gb_s or not self.pct_link:
            return None
        return 100 * self.busbw_gb_s / self.pct_link

    @property
    def bound_gb_s(self) -> float | None:
        """What bounds it there: what a read-only kernel reaches or, of a collective, links."""
        return self.link_gb_s if self.collective else self.ceiling_gb_s

    @property
    def medians_us(self) -> tuple[float, ...]:
        """Those of the rounds that have one."""
        return known(self.rounds_us)


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
