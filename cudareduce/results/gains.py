"""What each step of a lineage gained, by stored runs: those of the package, or a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from cudareduce.intervals import Interval, interval, paired
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load

_PACKAGE = Path(__file__).resolve().parent.parent
#: Runs of whole families, which are part of the package.
_STORED = "*/bench-*.json"


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as fast as `before` a kernel was on a card, in the same rounds: the median
    with its 95 % interval, None under six rounds, and the record of the kernel."""

    kernel: str
    before: str
    ratio: float
    ends: Interval | None
    record: Record
    device: str
    created: str


def stored_runs() -> list[Path]:
    """Files of the package that hold whole families: beside it in a checkout, inside it where it is
    installed."""
    folders = (_PACKAGE / "stored", _PACKAGE.parent / "results")
    return [path for folder in folders for path in sorted(folder.glob(_STORED))]


def gains(paths: Sequence[Path], after: Mapping[str, str | None]) -> list[Gain]:
    """What steps gained in these files, `after` tells the kernel before each, newest runs first. A
    file that does not load is a UsageError."""
    runs = sorted((load(path) for path in paths), key=lambda run: run.created, reverse=True)
    return [gain for run in runs for gain in _of_run(run, after)]


def _of_run(run: Run, after: Mapping[str, str | None]) -> Iterator[Gain]:
    """Those of one run: a kernel and the one before it on the same problem, largest first."""
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
    run: Run, found: Mapping[str, Record], after: Mapping[str, str | None]
) -> Iterator[Gain]:
    for name, record in found.items():
        before = found.get(after.get(name) or "")
        ratios = paired(before.rounds_us, record.rounds_us) if before else []
        if before and ratios:
            yield Gain(
                name, before.kernel, median(ratios), interval(ratios), record, run.device.name,
                run.created,
            )  # fmt: skip


def newest(found: Iterable[Gain]) -> dict[tuple[str, str], Gain]:
    """Of each kernel on each card the first of these."""
    first: dict[tuple[str, str], Gain] = {}
    for gain in found:
        first.setdefault((gain.kernel, gain.device), gain)
    return first
