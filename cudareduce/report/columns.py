"""The columns of tables: for each, the heading and the function that renders a record's cell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import (
    DASH,
    HALF_TICK_US,
    error_text,
    measured_text,
    memory_text,
    plain_text,
    share_text,
    short_size,
)
from cudareduce.results.record import Record
from cudareduce.text import group_by

#: Titles of the sources of a streamed array.
SOURCES = {"host": " from the host's memory", "file": " from a file"}


@dataclass(frozen=True, slots=True)
class Column:
    """The heading of a column, and the function that renders the cell of a record."""

    heading: str
    cell: Callable[[Record], str]


def label(record: Record) -> str:
    """The name of a record's row: the published name in a suite, else the kernel's name. Includes
    the engine of a collective, or the transfer mode and chunk size of a streamed array."""
    name = record.name or record.kernel
    return f"{name} {record.engine or way_text(record)}".rstrip()


def way_text(record: Record) -> str:
    """The transfer mode and chunk size of a streamed array; empty for one in device memory."""
    chunk = memory_text(record.chunk_bytes) if record.chunk_bytes else ""
    return f"{record.way if record.way != 'copy' else ''} {chunk}".strip() if record.way else ""


def full_label(record: Record) -> str:
    """The label, with the kernel and launch shape that `auto` selected, if there is one."""
    if record.chosen is None or record.way:
        return label(record)
    return f"{label(record)} ({record.chosen}, {record.block} x {record.items})"


def shape_text(record: Record) -> str:
    """The kernel and launch shape that `auto` selected."""
    threads, elements = counted(record.block or 0, "thread"), counted(record.items or 0, "element")
    return f"{record.chosen}, {threads} x {elements}"


def verdict_text(record: Record) -> str:
    """The verdict as one or two words."""
    right = "right if" if record.conditions else "right"
    return {"pass": right, "fail": "WRONG", "skip": DASH}[record.verdict]


def condition_text(record: Record) -> str:
    """The conditions under which a result is right."""
    return f"right if {' and '.join(record.conditions)}"


def distinct_text(record: Record) -> str:
    """The number of bitwise distinct results / number of launches; 1/10 means that all ten launches
    gave the same result."""
    return DASH if record.distinct is None else f"{record.distinct}/{record.launches}"


def condition_notes(records: Iterable[Record]) -> list[str]:
    """A note for each condition under which kernels are right, with their names."""
    groups = group_by((r for r in records if r.conditions), condition_text)
    return [
        f"{', '.join(dict.fromkeys(map(full_label, group)))}: {condition}"
        for condition, group in groups.items()
    ]


def choice_notes(records: Iterable[Record]) -> Iterator[str]:
    """Notes on the kernels that `auto` selected, with the sizes if it selected several."""
    for name, rows in group_by((r for r in records if r.chosen is not None), label).items():
        shapes = group_by(rows, shape_text)
        for shape, same in shapes.items():
            sizes = ", ".join(dict.fromkeys(short_size(r.n) for r in same))
            yield f"{name}: {shape}" + (f" at {sizes}" if len(shapes) > 1 else "")


def few_blocks_notes(records: Iterable[Record]) -> Iterator[str]:
    """Notes on kernels with fewer blocks than the requested SMs, because n is too small."""
    few = [
        r
        for r in records
        if r.time_us is not None and r.sms is not None and 0 < (r.grid or 0) < r.sms
    ]
    rows = group_by(few, lambda r: (label(r), r.grid or 0))
    requested = {key: ", ".join(dict.fromkeys(str(r.sms) for r in same))
                 for key, same in rows.items()}  # fmt: skip
    for (blocks, sms), keys in group_by(rows, lambda key: (key[1], requested[key])).items():
        names = ", ".join(name for name, _ in keys)
        yield (
            f"{names}: {counted(blocks, 'block')} at this n, so the rows for {sms} SMs used "
            f"{blocks}"
        )


def _whole(value: float | None) -> str:
    return DASH if value is None else f"{value:.0f}"


def _tick(r: Record) -> float:
    """The resolution of the event clock as a fraction of the time, at most 1."""
    return min(1.0, HALF_TICK_US / (r.batch or 1) / (r.time_us or 1.0))


def _spread(r: Record) -> float | None:
    """Half of the interval of the time, as a fraction of the time."""
    if not r.time_us or r.time_us_low is None or r.time_us_high is None:
        return None
    return max((r.time_us_high - r.time_us_low) / 2 / r.time_us, _tick(r))


def _measured(r: Record, value: float | None, low: float | None, high: float | None) -> str:
    return measured_text(value, low, high, _tick(r) * (value or 0))


def _speedup(r: Record) -> str:
    """Speed-up cell. A kernel against itself is 1 by definition."""
    if r.baseline == r.kernel and r.speedup == 1:
        return "1"
    return _measured(r, r.speedup, r.speedup_low, r.speedup_high)


def _overhead_us(r: Record) -> float | None:
    """The time in us beyond that of the local reductions of a sharded array."""
    if r.time_us is None or r.local_us is None or r.local_us == r.time_us:
        return None
    return r.time_us - r.local_us


def _scaling(r: Record) -> float | None:
    """The time of the local reductions in percent of the total."""
    if r.time_us is None or r.local_us is None:
        return None
    return 100 * r.local_us / r.time_us


COLUMNS: dict[str, Column] = {
    "kernel": Column("kernel", label),
    "timing": Column("timing", lambda r: r.timing),
    "time": Column("us", lambda r: _measured(r, r.time_us, r.time_us_low, r.time_us_high)),
    "rate": Column("GB/s", lambda r: _measured(r, r.gb_s, r.gb_s_low, r.gb_s_high)),
    "peak": Column("%peak", lambda r: share_text(r.pct_peak, _spread(r))),
    "ceiling": Column("%ceil", lambda r: share_text(r.pct_ceiling, _spread(r))),
    "speedup": Column("speedup", _speedup),
    "previous": Column(
        "vs prev",
        lambda r: _measured(r, r.speedup_prev, r.speedup_prev_low, r.speedup_prev_high),
    ),
    "slowdown": Column("x", lambda r: _measured(r, r.slowdown, r.slowdown_low, r.slowdown_high)),
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
    "over": Column("over us", lambda r: plain_text(_overhead_us(r), 2)),
    "scaling": Column("scaling%", lambda r: share_text(_scaling(r))),
    "skew": Column("skew us", lambda r: plain_text(r.skew_us, 2)),
    "loop": Column("loop us", lambda r: plain_text(r.loop_us)),
    "reasons": Column("throttled", lambda r: r.event_reasons or DASH),
}


def timed_columns(records: Sequence[Record], more: Sequence[str]) -> list[Column]:
    """The default columns of a table of times, which fit into 80 characters, and the columns named
    in `more`."""
    timed = [r for r in records if r.time_us is not None]
    several_timings = len({r.timing for r in timed}) > 1
    names = ["kernel", "time", "rate", "peak", "ceiling", "speedup", "previous"]
    if several_timings:
        names = ["kernel", "timing", "time", "rate", "peak", "speedup"]
    if any(r.way for r in records):
        names = ["kernel", "time", "rate", "copied", "noise"]
    if any(r.context for r in records):
        names = ["kernel", "time", "rate", "ceiling", "speedup", "host"]
        names[1:1] = ["timing"] * several_timings
    if any((r.batch or 1) > 1 for r in timed):
        names.append("batch")
    if any("graph" in r.timing for r in timed):
        names = [*(name for name in names if name != "peak"), "host"]
    if any(r.joules_per_gb for r in timed):
        names.append("energy")
    return [COLUMNS[name] for name in dict.fromkeys([*names, *more])]
