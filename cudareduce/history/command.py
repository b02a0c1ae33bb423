"""`history`: add a run, draw a kernel's curve, and fail where one became slower and stayed so."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.baseline import load_timed
from cudareduce.gate.verdicts import problem_text
from cudareduce.history.entries import Entry, moment
from cudareduce.history.folder import append, read
from cudareduce.history.picture import changes, curve, day
from cudareduce.history.series import THRESHOLD, Level, Series, Verdict, all_series
from cudareduce.history.steps import FEWEST
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.ci import Finding, junit, tell_ci
from cudareduce.report.numbers import plain_text, short_size
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import Section, first_few
from cudareduce.report.terminal import print_sections

#: A kernel that none of so many runs has any more is not judged.
_RECENT = 10
_STEPS = ("since", "revision", "old us", "new us", "change", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """Which kernels to draw, by name or pattern; `n` are sizes, None for all; `since` is a day or a
    revision."""

    kernel: str
    folder: Path
    n: tuple[int, ...] | None
    since: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCheckRequest:
    """How to judge a history; `threshold` is a share, None the usual one."""

    folder: Path
    since: str | None
    threshold: float | None
    everything: bool
    outputs: Outputs


@dataclass(frozen=True, slots=True)
class Judged:
    """A series of one kind of machine, its verdict, and whether its last run is the latest one."""

    device: str
    series: Series
    verdict: Verdict
    latest: bool


def add(result: Path, folder: Path) -> int:
    """Append a run to the history; one that it holds is left. A result that cannot be compared is a
    UsageError."""
    path, new = append(load_timed(result), folder)
    say(f"{path} {'now holds' if new else 'held before'} the run of {result}")
    return 0


def show(request: ShowRequest) -> int:
    """Print the curve of each problem of a kernel, and its steps; 0."""
    sections, sizes, names = [], set[int](), set[str]()
    for entries in _since(read(request.folder), request.since).values():
        for series in all_series(entries):
            record = series.record
            names.add(record.kernel)
            if not fnmatchcase(record.kernel, request.kernel):
                continue
            sizes.add(record.n)
            if request.n is None or record.n in request.n:
                sections.append(_drawn(series, entries[-1].device.name))
    if not sections:
        held = map(short_size, sorted(sizes)) if sizes else sorted(names)
        at = f" with --n {','.join(map(str, request.n or ()))}" if sizes else ""
        raise UsageError(
            f"{request.folder} holds no runs of {request.kernel}{at}; it has: {first_few(held, 6)}"
        )
    print_sections(sections)
    return 0


def _drawn(series: Series, device: str) -> Section:
    record, runs = series.record, len(series.points)
    rows = tuple(changes(series))
    return Section(
        f"{record.kernel}, {problem_text(record)}, us, {device}, {counted(runs, 'run')}",
        _STEPS, rows, _notes(series, rows), texts=2, head=tuple(curve(series)),
    )  # fmt: skip


def _notes(series: Series, rows: Sequence[object]) -> tuple[str, ...]:
    notes = [] if rows else ["no step: nothing has changed that two runs would show"]
    if len(rows) > 1:
        now, best = (plain_text(level.us, 4) for level in (series.last, series.best))
        notes.append(f"now {now}, {100 * (series.change - 1):+.1f} % against the best, {best}")
    if series.cards > 1:
        notes.append(
            f"{series.cards} cards: times as on the last one, by what a read-only kernel reaches"
        )
    if series.left_out:
        notes.append(
            f"{counted(series.left_out, 'run')} of another card without a ceiling left out"
        )
    return tuple(notes)


def check(request: HistoryCheckRequest) -> int:
    """Judge every series: 1 where one has become slower and stayed so for two runs, else 0."""
    request.outputs.check()
    threshold = THRESHOLD if request.threshold is None else request.threshold
    judged = [
        Judged(
            entries[-1].device.name, series, series.verdict(threshold),
            latest=series.points[-1].entry is entries[-1],
        )
        for entries in _since(read(request.folder), request.since).values()
        for series in all_series(entries) if _still_run(series, entries)
    ]  # fmt: skip
    section = _table(judged, request, threshold)
    told = [_finding(one) for one in judged]
    publish(
        request.outputs, [section],
        {"junit": lambda: junit(told, "cudareduce history"), "json": lambda: _json(judged)},
        commands=tell_ci([one for one in told if one.outcome == "failed"], [section],
                         lambda kernel: None),
    )  # fmt: skip
    return 1 if any(one.verdict == "SLOWER" for one in judged) else 0


def _still_run(series: Series, entries: Sequence[Entry]) -> bool:
    return series.points[-1].entry in entries[-_RECENT:]


def _table(judged: Sequence[Judged], request: HistoryCheckRequest, threshold: float) -> Section:
    order: dict[Verdict, int] = {"SLOWER": 0, "MACHINE": 1, "SAME": 2}
    shown = sorted(
        (one for one in judged if request.everything or one.verdict != "SAME"),
        key=lambda one: (order[one.verdict], -one.series.change),
    )
    devices = {one.device for one in judged}
    runs = max((len(one.series.points) for one in judged), default=0)
    counts = Counter(one.verdict for one in judged)
    told = ", ".join(
        f"{counts[word]} {word}" for word in order if counts[word] or word != "MACHINE"
    )
    notes = [f"{counted(len(judged), 'series', 'series')}: {told}"]
    young = sum(len(one.series.points) < FEWEST for one in judged)
    if young:
        notes.append(f"{young} of them have fewer than {FEWEST} runs, of which no step is told")
    absent = sum(not one.latest for one in judged)
    if absent:
        notes.append(f"{absent} of them have no time in the last run: not measured there, or wrong")
    if counts["MACHINE"]:
        notes.append("MACHINE: the machine code was as quick before, so the machine has changed")
    if counts["SLOWER"]:
        kernel = shown[0].series.record.kernel
        shell = shlex.join(["cudareduce", "history", "show", kernel, "--from", str(request.folder)])
        notes.append(f"next: {shell}; where it is meant, judge from then on with --since")
    rows = tuple(
        (one.verdict, one.series.record.kernel, problem_text(one.series.record),
         _level(one.series.best), _level(one.series.last), f"{100 * (one.series.change - 1):+.1f}%",
         str(len(one.series.levels) - 1))
        for one in shown
    )  # fmt: skip
    title = f"{request.folder}, {', '.join(sorted(devices))}, up to {counted(runs, 'run')}"
    header = ("verdict", "kernel", "what", "best us", "now us", "change", "steps")
    return Section(f"{title}, limit {100 * threshold:g}%", header, rows, tuple(notes), 3)


def _level(level: Level) -> str:
    return plain_text(level.us, 4)


def _finding(one: Judged) -> Finding:
    series = one.series
    outcome = {"SLOWER": "failed", "MACHINE": "skipped", "SAME": "passed"}[one.verdict]
    text = f"{100 * (series.change - 1):+.1f}% against the best, in {len(series.levels) - 1} steps"
    if one.verdict != "SAME":
        begun = series.points[series.last.first].entry
        text += f", the last since {day(begun.created)}, {begun.revision}"
    return Finding(
        series.record.kernel, problem_text(series.record), one.verdict, text,
        outcome, series.last.us / 1e6,  # type: ignore[arg-type]
    )  # fmt: skip


def _json(judged: Iterable[Judged]) -> str:
    found = [
        {
            "kernel": one.series.record.kernel, "what": problem_text(one.series.record),
            "device": one.device, "verdict": one.verdict, "runs": len(one.series.points),
            "best_us": one.series.best.us, "now_us": one.series.last.us,
            "change_pct": 100 * (one.series.change - 1),
            "levels": [
                {
                    "since": one.series.points[level.first].entry.created.isoformat(),
                    "revision": one.series.points[level.first].entry.git,
                    "runs": level.end - level.first, "us": level.us,
                }
                for level in one.series.levels
            ],
        }
        for one in judged
    ]  # fmt: skip
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def _since(
    history: Mapping[str, tuple[Entry, ...]], since: str | None
) -> Mapping[str, tuple[Entry, ...]]:
    """The runs from a day on, or from the first of a revision on; none at all are a UsageError."""
    if since is None:
        return {name: entries for name, entries in history.items() if entries}
    try:
        begin = moment(since)
    except ValueError:
        of_it = [e.created for some in history.values() for e in some if since in (e.git or "")]
        if not of_it:
            raise UsageError(
                f"--since {since} is neither a day, as 2026-03-01, nor a revision of a run"
            ) from None
        begin = min(of_it)
    left = {name: tuple(e for e in some if e.created >= begin) for name, some in history.items()}
    left = {name: some for name, some in left.items() if some}
    if not left:
        raise UsageError(f"--since {since}: there are no runs from then on")
    return left
