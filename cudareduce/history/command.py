"""`history add`, `show` and `check`: store runs, draw curves, find lasting regressions."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.baseline import load_timed
from cudareduce.gate.report import called, in_short, problem_text, reduction_text, shape_text
from cudareduce.history.picture import changes, curve, day
from cudareduce.history.series import FEWEST, THRESHOLD, Series, Verdict, all_series
from cudareduce.history.storage import Entry, History, append, files, moment, read
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.ci import Finding, junit, tell_ci
from cudareduce.report.numbers import plain_text, short_size
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.section import Section
from cudareduce.report.sections import first_few, listed
from cudareduce.report.terminal import print_sections

#: A series without a time in any of the last so many runs is not judged.
_RECENT = 10
#: The most skipped lines that are listed.
_MOST_SKIPPED = 3
_STEPS = ("since", "revision", "old us", "new us", "change", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """Options of `history show`: a kernel name or pattern, sizes (None for all), and the day or
    revision to start from."""

    kernel: str
    folder: Path
    n: tuple[int, ...] | None
    since: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCheckRequest:
    """Options of `history check`; `threshold` is a share, None for the default."""

    folder: Path
    since: str | None
    threshold: float | None
    everything: bool
    outputs: Outputs


def add(result: Path, folder: Path) -> int:
    """Append a run to the history unless it is there already. Raises UsageError if the result
    cannot be compared."""
    path, new = append(load_timed(result), folder)
    say(f"added {result} to {path}" if new else f"{path} has the run of {result} already")
    return 0


def show(request: ShowRequest) -> int:
    """Print the curve of each problem of a kernel, with its change points. Returns 0."""
    sections, sizes, names = [], set[int](), set[str]()
    history = read(request.folder)
    for entries in _since(history.runs, request.since).values():
        for series in all_series(entries):
            record = series.record
            own_names = (record.kernel, record.engine or record.kernel)
            names.update(own_names)
            if not any(fnmatchcase(name, request.kernel) for name in own_names):
                continue
            sizes.add(record.n)
            if request.n is None or record.n in request.n:
                sections.append(_curve_section(series, entries[-1].device.name))
    if not sections:
        present = map(short_size, sorted(sizes)) if sizes else sorted(names)
        at = f" with --n {','.join(map(str, request.n or ()))}" if sizes else ""
        raise UsageError(
            f"{request.folder} has no runs of {request.kernel}{at}; it has: {first_few(present, 6)}"
        )
    print_sections(sections)
    for line in _skipped_lines(history):
        say(line)
    return 0


def _curve_section(series: Series, device: str) -> Section:
    record, runs = series.record, len(series.points)
    rows = tuple(changes(series))
    return Section(
        f"{record.kernel}, {problem_text(record)}, us, {device}, {counted(runs, 'run')}",
        _STEPS, rows, _curve_notes(series, rows), texts=2, head=tuple(curve(series)),
    )  # fmt: skip


def _curve_notes(series: Series, rows: Sequence[object]) -> tuple[str, ...]:
    notes = [] if rows else ["no change point: no two successive runs differ from the others"]
    if len(rows) > 1:
        now, best = (plain_text(level.us, 4) for level in (series.last, series.best))
        notes.append(f"now {now}, {100 * (series.change - 1):+.1f} % against the best, {best}")
    if series.cards > 1:
        notes.append(
            f"{series.cards} cards: times scaled to the last by the ceilings of a read-only kernel"
        )
    if series.left_out:
        notes.append(
            f"{counted(series.left_out, 'run')} of another card without a ceiling left out"
        )
    return tuple(notes)


def check(request: HistoryCheckRequest) -> int:
    """Judge every series. Returns 1 if one became slower and stayed so for two runs, else 0."""
    request.outputs.check(*files(request.folder))
    threshold = THRESHOLD if request.threshold is None else request.threshold
    history = read(request.folder)
    judged = [
        Judged(
            name, entries[-1].device.name, series, series.verdict(threshold),
            latest=series.points[-1].entry is entries[-1],
        )
        for name, entries in _since(history.runs, request.since).items()
        for series in all_series(entries) if _still_run(series, entries)
    ]  # fmt: skip
    skipped = _skipped_lines(history)
    sections = judged_sections(
        judged, request.folder, threshold, skipped, everything=request.everything
    )
    findings = [judged_finding(one) for one in judged]
    publish(
        request.outputs, sections,
        {
            "junit": lambda: junit(findings, "cudareduce history"),
            "json": lambda: judged_json(judged),
        },
        commands=tell_ci([one for one in findings if one.outcome == "failed"], sections,
                         lambda kernel: None),
    )  # fmt: skip
    if (request.outputs.piped or request.outputs.style) in ("json", "junit"):
        for line in skipped:  # these formats have no place for them
            say(line)
    return 1 if any(one.verdict == "SLOWER" for one in judged) else 0


def _skipped_lines(history: History) -> list[str]:
    """A message about the lines that are not runs, if there are any."""
    found = history.left_out
    if not found:
        return []
    more = f"; and {len(found) - _MOST_SKIPPED} more" if len(found) > _MOST_SKIPPED else ""
    return [f"left out, {counted(len(found), 'line')}: {'; '.join(found[:_MOST_SKIPPED])}{more}"]


def _still_run(series: Series, entries: Sequence[Entry]) -> bool:
    return series.points[-1].entry in entries[-_RECENT:]


def _since(
    history: Mapping[str, tuple[Entry, ...]], since: str | None
) -> Mapping[str, tuple[Entry, ...]]:
    """The runs from a day or the first run of a revision on. Raises UsageError without any."""
    if since is None:
        return {name: entries for name, entries in history.items() if entries}
    try:
        begin = moment(since)
    except ValueError:
        of_revision = [
            e.created for some in history.values() for e in some if since in (e.git or "")
        ]
        if not of_revision:
            raise UsageError(
                f"--since {since} is neither a day, such as 2026-03-01, nor the revision of a run"
            ) from None
        begin = min(of_revision)
    left = {name: tuple(e for e in some if e.created >= begin) for name, some in history.items()}
    left = {name: some for name, some in left.items() if some}
    if not left:
        raise UsageError(f"--since {since}: there are no later runs")
    return left


_ORDER: Mapping[Verdict, int] = {"SLOWER": 0, "MACHINE": 1, "SAME": 2}


@dataclass(frozen=True, slots=True)
class Judged:
    """A series with its verdict; `latest` is whether it has a time in the last run of its file."""

    file: str
    device: str
    series: Series
    verdict: Verdict
    latest: bool


def judged_sections(
    judged: Sequence[Judged], folder: Path, threshold: float, more: Sequence[str], *,
    everything: bool,
) -> list[Section]:  # fmt: skip
    """One table per kind of machine and reduction, to fit 80 columns, worst rows first. Rows that
    are SAME are shown with `everything`. Notes and `more` follow the last table."""
    shown = sorted(
        (one for one in judged if everything or one.verdict != "SAME"),
        key=lambda one: (_ORDER[one.verdict], -one.series.change),
    )
    groups: dict[tuple[str, str], list[Judged]] = {}
    for one in shown:
        groups.setdefault((one.file, reduction_text(one.series.record)), []).append(one)
    found = [_table(some, folder, reduction, threshold)
             for (_, reduction), some in groups.items()]  # fmt: skip
    if not found:
        title = _title(folder, listed(sorted({one.device for one in judged})), judged, threshold)
        found = [Section(title, (), ())]
    notes = (*_notes(judged, shown, folder), *more)
    return [*found[:-1], replace(found[-1], notes=notes)]


def _title(folder: Path, what: str, judged: Iterable[Judged], threshold: float) -> str:
    runs = max((len(one.series.points) for one in judged), default=0)
    parts = [str(folder), what, f"up to {counted(runs, 'run')}", f"limit {100 * threshold:g}%"]
    return ", ".join(filter(None, parts))


def _table(some: Sequence[Judged], folder: Path, reduction: str, threshold: float) -> Section:
    rows = tuple(
        (one.verdict, one.series.record.kernel, in_short(shape_text(one.series.record)),
         plain_text(one.series.best.us, 4), plain_text(one.series.last.us, 4),
         f"{100 * (one.series.change - 1):+.1f}%", str(len(one.series.levels) - 1))
        for one in some
    )  # fmt: skip
    size = "n x rows" if any(one.series.record.rows != 1 for one in some) else "n"
    header = ("verdict", "kernel", size, "best us", "now us", "change", "steps")
    title = _title(folder, f"{some[0].device}, {reduction}", some, threshold)
    return Section(title, header, rows, texts=3)


def _notes(judged: Sequence[Judged], shown: Sequence[Judged], folder: Path) -> list[str]:
    counts = Counter(one.verdict for one in judged)
    summary = ", ".join(
        f"{counts[word]} {word}" for word in _ORDER if counts[word] or word != "MACHINE"
    )
    notes = [f"{counted(len(judged), 'series', 'series')}: {summary}"]
    young = sum(len(one.series.points) < FEWEST for one in judged)
    if young:
        notes.append(f"{young} of them have fewer than {FEWEST} runs, too few for a change point")
    absent = sum(not one.latest for one in judged)
    if absent:
        notes.append(f"{absent} of them have no time in the last run: not measured, or WRONG")
    if counts["MACHINE"]:
        notes.append("MACHINE: the same machine code was faster before, so the machine has changed")
    if counts["SLOWER"]:
        worst = shown[0].series.record
        name = worst.engine or worst.kernel
        shell = shlex.join(["cudareduce", "history", "show", name, "--from", str(folder)])
        notes.append(f"next: {shell}; if the change is intended, pass --since with its date")
    return notes


def judged_finding(one: Judged) -> Finding:
    """A series as a finding for a CI service."""
    series = one.series
    outcome = {"SLOWER": "failed", "MACHINE": "skipped", "SAME": "passed"}[one.verdict]
    text = f"{100 * (series.change - 1):+.1f}% against the best"
    text += f", in {counted(len(series.levels) - 1, 'step')}"
    if one.verdict != "SAME":
        begun = series.points[series.last.first].entry
        text += f", the last since {day(begun.created)}, {begun.revision}"
    return Finding(
        called(series.record), problem_text(series.record), one.verdict, text,
        outcome, series.last.us / 1e6,  # type: ignore[arg-type]
    )  # fmt: skip


def judged_json(judged: Iterable[Judged]) -> str:
    """The series with their levels, as JSON."""
    found = [
        {
            "kernel": called(one.series.record), "what": problem_text(one.series.record),
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
