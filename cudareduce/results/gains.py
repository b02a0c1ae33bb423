"""The speedup of each kernel over its predecessor, from stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from cudareduce.intervals import Interval, interval, paired
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from cudareduce.text import group_by

_PACKAGE = Path(__file__).resolve().parent.parent
#: Result files with the runs of whole families.
_STORED = "*/bench-*.json"


@dataclass(frozen=True, slots=True)
class Gain:
    """The speedup of a kernel over its predecessor `before`, measured in the same rounds on one
    GPU: the median ratio, its 95 % interval (None under six rounds), and the kernel's record."""

    kernel: str
    before: str
    ratio: float
    ends: Interval | None
    record: Record
    device: str
    created: str


def stored_runs() -> list[Path]:
    """The result files in the installed package, or those in `results/` in a checkout."""
    folders = (_PACKAGE / "stored", _PACKAGE.parent / "results")
    return [path for folder in folders for path in sorted(folder.glob(_STORED))]


def gains(paths: Sequence[Path], after: Mapping[str, str | None]) -> list[Gain]:
    """The gains in these result files, newest runs first. `after` maps each kernel to its
    predecessor. Raises UsageError for a file that cannot be loaded."""
    runs = sorted((load(path) for path in paths), key=lambda run: run.created, reverse=True)
    return [gain for run in runs for gain in _of_run(run, after)]


def _of_run(run: Run, after: Mapping[str, str | None]) -> Iterator[Gain]:
    """The gains of one run, largest problem first."""
    timed = [
        record
        for record in run.records
        if record.time_us and record.aligned_n is None and record.source is None
    ]
    problems = groupby(sorted(timed, key=_problem, reverse=True), _problem)
    for _, group in problems:
        yield from _of_problem(run, {record.kernel: record for record in group}, after)


def _problem(record: Record) -> tuple[object, ...]:
    r = record
    return r.n * r.rows, r.op, r.map or "", r.dtype, r.n, r.sms or 0, r.context or ""


def _of_problem(
    run: Run, records: Mapping[str, Record], after: Mapping[str, str | None]
) -> Iterator[Gain]:
    for name, record in records.items():
        before = records.get(after.get(name) or "")
        ratios = paired(before.rounds_us, record.rounds_us) if before else []
        if before and ratios:
            yield Gain(
                name, before.kernel, median(ratios), interval(ratios), record, run.device.name,
                run.created,
            )  # fmt: skip


def newest(gains: Iterable[Gain]) -> list[Gain]:
    """The first of the gains of each kernel on each GPU model."""
    return [same[0] for same in group_by(gains, lambda gain: (gain.kernel, gain.device)).values()]
