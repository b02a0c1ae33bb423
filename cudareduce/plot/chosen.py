"""The records that a picture is made of: timed, of one problem each, under short names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from cudareduce.errors import UsageError
from cudareduce.escapes import shown
from cudareduce.machine.device import DeviceInfo
from cudareduce.plot.figure import Who
from cudareduce.problem.sizes import LARGEST
from cudareduce.report.columns import label
from cudareduce.report.numbers import short_size, size_text
from cudareduce.results.record import Record, Run

#: No measurement in microseconds, GB/s and the like lies beyond these.
_LEAST, _MOST = 1e-9, 1e15
#: So many that are not drawn are named.
_TOLD = 6


@dataclass(frozen=True, slots=True)
class Problem:
    """Timed records of one reduction on one device, of any size and on any number of SMs; and those
    that are not drawn, since their answers are wrong or they were skipped."""

    title: str
    device: DeviceInfo
    records: tuple[Record, ...]
    undrawn: tuple[Record, ...] = ()


def problems(run: Run, only: Sequence[str] = ()) -> list[Problem]:
    """The reductions of a run, with what has a time and a name among `only`, which may be patterns.
    Where libraries were timed, these are the times beside them: only those compare."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in run.records:
        if r.aligned_n is None:
            groups.setdefault(_problem(r), []).append(r)
    found = []
    for records in groups.values():
        beside = [r for r in records if r.context]
        wanted = [r for r in beside or records if _named(r, only)]
        kept = tuple(_sane(r) for r in wanted if is_timed(r))
        if kept:
            undrawn = tuple(r for r in wanted if r.verdict != "pass")
            found.append(Problem(_title(kept, run), _sane_device(run.device), kept, undrawn))
    return found


def undrawn_notes(records: Sequence[Record], *, sizes: bool) -> list[str]:
    """What is said below a picture of those that are not in it, and at which of several `sizes`."""
    words = {"fail": "wrong, and so not drawn", "skip": "skipped"}
    notes = []
    for verdict, why in words.items():
        named = by_name(r for r in records if r.verdict == verdict)
        told = [name + _at_sizes(found) * sizes for name, found in named.items()]
        more = f" and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
        notes += [f"{why}: {', '.join(told[:_TOLD])}{more}"] if told else []
    return notes


def _at_sizes(records: Iterable[Record]) -> str:
    found = sorted({elements(r) for r in records})
    where = short_size(found[0]) if len(found) == 1 else f"{len(found)} sizes"
    return f" at {where}"


def _problem(r: Record) -> tuple[object, ...]:
    collective = r.kernel if r.collective else None
    return r.op, r.map, r.dtype, r.acc, r.rows == 1, r.timing, r.region, r.ranks, collective


def is_timed(record: Record) -> bool:
    """Whether there is a time on the device to be drawn."""
    fits = 0 < elements(record) <= LARGEST
    return record.verdict == "pass" and fits and _drawable(record.time_us, record.gb_s)


def _drawable(*values: float | None) -> bool:
    return all(value is not None and _LEAST <= value <= _MOST for value in values)


def _sane(r: Record) -> Record:
    """Without an interval that does not hold its value, which a file may claim."""
    if not (_drawable(r.gb_s_low, r.gb_s_high) and _holds(r.gb_s_low, r.gb_s, r.gb_s_high)):
        r = replace(r, gb_s_low=None, gb_s_high=None)
    if not (_drawable(r.time_us_low, r.time_us_high)
            and _holds(r.time_us_low, r.time_us, r.time_us_high)):  # fmt: skip
        r = replace(r, time_us_low=None, time_us_high=None)
    if not _drawable(r.ceiling_gb_s, r.pct_ceiling):
        r = replace(r, ceiling_gb_s=None, pct_ceiling=None)
    return r


def _holds(low: float | None, value: float | None, high: float | None) -> bool:
    return (low or 0.0) <= (value or 0.0) <= (high or 0.0)


def _sane_device(device: DeviceInfo) -> DeviceInfo:
    peak = device.peak_gb_s if _drawable(device.peak_gb_s) else None
    cache = device.l2_bytes if _drawable(device.l2_bytes) else None
    sms = device.sm_count if _drawable(device.sm_count) else None
    return replace(device, peak_gb_s=peak, l2_bytes=cache, sm_count=sms, name=shown(device.name))


def elements(record: Record) -> int:
    """The size of a problem: a long array may be many rows to one kernel and one to another."""
    return record.n * record.rows


def _named(record: Record, only: Sequence[str]) -> bool:
    names = (record.kernel, label(record), short(record), record.kernel.removeprefix("peer:"))
    return not only or any(fnmatchcase(name, pattern) for pattern in only for name in names)


def _title(records: Sequence[Record], run: Run) -> str:
    first = records[0]
    title = shown(f"{first.reduced} of {first.dtype}")
    if first.collective:
        title = shown(f"{first.kernel}, {title}")
    title += f", {first.ranks} ranks" if first.ranks else ""
    if first.acc != first.dtype:
        title += f", accumulated in {first.acc}"
    lengths, counts = {r.n for r in records}, {r.rows for r in records}
    if counts != {1} and len(lengths) == 1:
        title += f", rows of {size_text(first.n)}"
    elif counts != {1}:
        title += f", {size_text(first.rows)} rows" if len(counts) == 1 else ", rows"
    title += f", {shown(first.timing)}"
    if first.region == "first-pass":
        title += ", first pass only"
    return f"{title}, {shown(run.device.name)}"


def short(record: Record) -> str:
    """What a record is called beside a curve: without what all names begin with."""
    name = record.engine if record.collective else label(record)
    return shown(name or "").removeprefix("reduce_").removeprefix("peer:")


def who(record: Record) -> Who:
    """Whose it is."""
    return "library" if record.scope == "library" else "kernel"


def by_name(records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records under each short name, in the order of tables."""
    found: dict[str, list[Record]] = {}
    for r in records:
        found.setdefault(short(r), []).append(r)
    return found


def one_device(runs: Sequence[Run]) -> DeviceInfo:
    """The device that all runs were made on; several are a UsageError, since their times are not
    of one picture."""
    names = list(dict.fromkeys(run.device.name for run in runs))
    if len(names) > 1:
        raise UsageError(
            f"these are results of {' and '.join(names)}: draw each by itself, or both in per cent "
            "of their ceilings with --kind gpus"
        )
    return runs[0].device
