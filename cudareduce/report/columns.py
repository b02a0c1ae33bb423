"""The columns of the table of times: what each is called, and how a record fills it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cudareduce.report.numbers import (
    DASH,
    HALF_TICK_US,
    error_text,
    measured_text,
    memory_text,
    plain_text,
    share_text,
)
from cudareduce.results.record import Record


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and the text of a record's cell under it."""

    heading: str
    cell: Callable[[Record], str]


#: Where an array that is streamed comes from, as titles say it.
SOURCES = {"host": " from the host's memory", "file": " from a file"}


def label(record: Record) -> str:
    """What a row is called: the published name in a suite, else the kernel's own; of a collective
    with its engine, and where an array is streamed, with its way and its chunks."""
    name = record.name or record.kernel
    return f"{name} {record.engine or way_text(record)}".rstrip()


def way_text(record: Record) -> str:
    """By which way an array is streamed, and in which chunks; nothing of one on the card."""
    chunk = memory_text(record.chunk_bytes) if record.chunk_bytes else ""
    return f"{record.way if record.way != 'copy' else ''} {chunk}".strip() if record.way else ""


def full_label(record: Record) -> str:
    """What a row is called where its reasons stand: with the kernel that `auto` took."""
    if record.chosen is None or record.way:
        return label(record)
    return f"{label(record)} ({record.chosen}, {record.block} x {record.items})"


def answer_text(record: Record) -> str:
    """The verdict in a word or two."""
    right = "right if" if record.conditions else "right"
    return {"pass": right, "fail": "WRONG", "skip": DASH}[record.verdict]


def condition_text(record: Record) -> str:
    """On what condition a right one is right."""
    return f"right if {' and '.join(record.conditions)}"


def condition_notes(records: Iterable[Record]) -> list[str]:
    """On which conditions kernels are right, with the kernels of each."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        if record.conditions:
            found.setdefault(condition_text(record), {})[full_label(record)] = None
    return [f"{', '.join(names)}: {condition}" for condition, names in found.items()]


def distinct_text(record: Record) -> str:
    """Different answers in so many launches; 1/10 is an answer that is always the same."""
    return DASH if record.distinct is None else f"{record.distinct}/{record.launches}"


def _whole(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f}"


def _tick(r: Record) -> float:
    """The share of a time that the event clock leaves open, at most all of it."""
    return min(1.0, HALF_TICK_US / (r.batch or 1) / (r.time_us or 1.0))


def _spread(r: Record) -> float | None:
    if not r.time_us or r.time_us_low is None or r.time_us_high is None:
        return None
    return max((r.time_us_high - r.time_us_low) / 2 / r.time_us, _tick(r))


def _time(r: Record) -> str:
    return measured_text(r.time_us, r.time_us_low, r.time_us_high, _tick(r) * (r.time_us or 0))


def _rate(r: Record) -> str:
    return measured_text(r.gb_s, r.gb_s_low, r.gb_s_high, _tick(r) * (r.gb_s or 0))


def _against(r: Record) -> str:
    """A kernel against itself is 1 by definition, not by measurement."""
    if r.baseline == r.kernel and r.speedup == 1:
        return "1"
    return _ratio(r, r.speedup, r.speedup_low, r.speedup_high)


def _ratio(r: Record, value: float | None, low: float | None, high: float | None) -> str:
    return measured_text(value, low, high, _tick(r) * (value or 0))


COLUMNS: dict[str, Column] = {
    "kernel": Column("kernel", label),
    "timing": Column("timing", lambda r: r.timing),
    "time": Column("us", _time),
    "rate": Column("GB/s", _rate),
    "peak": Column("%peak", lambda r: share_text(r.pct_peak, _spread(r))),
    "ceiling": Column("%ceil", lambda r: share_text(r.pct_ceiling, _spread(r))),
    "speedup": Column("speedup", _against),
    "previous": Column(
        "vs prev",
        lambda r: _ratio(r, r.speedup_prev, r.speedup_prev_low, r.speedup_prev_high),
    ),
    "slowdown": Column("x", lambda r: _ratio(r, r.slowdown, r.slowdown_low, r.slowdown_high)),
    "copied": Column("%copy", lambda r: share_text(r.pct_ceiling, _spread(r))),
    "batch": Column("batch", lambda r: _whole(r.batch)),
    "host": Column("host us", lambda r: plain_text(r.host_us, 2)),
    "min": Column("min us", lambda r: plain_text(r.time_us_min)),
    "noise": Column("noise%", lambda r: share_text(r.noise_pct)),
    "samples": Column("samples", lambda r: _whole(r.samples)),
    "discarded": Column("discarded", lambda r: _whole(r.discarded)),
    "error": Column("error", lambda r: error_text(r.error)),
    "bound": Column("bound", lambda r: error_text(r.bound)),
    "share": Column("%bound", lambda r: error_text(r.pct_bound)),
    "ulp": Column("ulp", lambda r: error_text(r.error_ulp)),
    "distinct": Column("distinct", distinct_text),
    "clock": Column("SM MHz", lambda r: _whole(r.sm_mhz)),
    "memory": Column("mem MHz", lambda r: _whole(r.memory_mhz)),
    "power": Column("W", lambda r: _whole(r.power_w)),
    "temperature": Column("C", lambda r: _whole(r.temperature_c)),
    "energy": Column("J/GB", lambda r: plain_text(r.joules_per_gb)),
    "algbw": Column("algbw", lambda r: plain_text(r.algbw_gb_s)),
    "busbw": Column("busbw", lambda r: plain_text(r.busbw_gb_s)),
    "link": Column("%link", lambda r: share_text(r.pct_link)),
    "over": Column("over us", lambda r: plain_text(_over(r), 2)),
    "scaling": Column("scaling%", lambda r: share_text(_scaling(r))),
    "skew": Column("skew us", lambda r: plain_text(r.skew_us, 2)),
    "loop": Column("loop us", lambda r: plain_text(r.loop_us)),
    "reasons": Column("throttled", lambda r: r.event_reasons or DASH),
}


def _over(record: Record) -> float | None:
    """How much longer than the shares alone it took."""
    if record.time_us is None or record.local_us is None or record.local_us == record.time_us:
        return None
    return record.time_us - record.local_us


def _scaling(record: Record) -> float | None:
    """The share of the time that the shares alone took, in per cent."""
    if record.time_us is None or record.local_us is None:
        return None
    return 100 * record.local_us / record.time_us


def chosen(records: Sequence[Record], more: Sequence[str]) -> list[Column]:
    """The columns of a table: what fits into 80 characters, and what was asked for besides."""
    timed = [r for r in records if r.time_us is not None]
    names = ["kernel", "time", "rate", "peak", "ceiling", "speedup", "previous"]
    if len({r.timing for r in timed}) > 1:
        names = ["kernel", "timing", "time", "rate", "peak", "speedup"]
    if any(r.way for r in records):
        names = ["kernel", "time", "rate", "copied", "noise"]
    if any(r.context for r in records):
        names = ["kernel", "time", "rate", "ceiling", "speedup", "host"]
        names[1:1] = ["timing"] if len({r.timing for r in timed}) > 1 else []
    if any((r.batch or 1) > 1 for r in timed):
        names.append("batch")
    if any("graph" in r.timing for r in timed):
        names = [*(name for name in names if name != "peak"), "host"]
    if any(r.joules_per_gb for r in timed):
        names.append("energy")
    return [COLUMNS[name] for name in dict.fromkeys([*names, *more])]
