"""`history add`, `show` and `check`: store runs, draw curves, find lasting regressions."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median

from cudareduce.catalog.registry import full_name
from cudareduce.compare.baseline import load_timed
from cudareduce.compare.change_points import FEWEST, THRESHOLD, Series, Verdict, all_series
from cudareduce.compare.history_store import Entry, History, append, files, moment, read
from cudareduce.compare.report import abbreviate, called, problem_text, reduction_text, shape_text
from cudareduce.errors import UsageError
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.report.ci import Finding, publish_findings
from cudareduce.report.numbers import change_text, plain_text, short_size
from cudareduce.report.publish import Outputs
from cudareduce.report.section import Section
from cudareduce.report.sections import listed
from cudareduce.report.terminal import print_sections
from cudareduce.results.record import Record
from cudareduce.text import first_few, group_by


def add(result: Path, folder: Path) -> int:
    """Append a run to the history unless it is there already. Raises UsageError if the result
    cannot be compared."""
    run = load_timed(result)
    if all(record.time_us is None for record in run.records):
        raise UsageError(f"{result} holds no times, so nothing is added to {folder}: bench again")
    path, new = append(run, folder)
    say(f"added {result} to {path}" if new else f"{path} has the run of {result} already")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRequest:
    """Options of `history show`: a kernel name or pattern, sizes (None for all), and the day or
    revision to start from."""

    kernel: str
    folder: Path
    n: tuple[int, ...] | None
    since: str | None


def show(request: ShowRequest) -> int:
    """Print the curve of each problem of a kernel, with its change points. Returns 0."""
    sections, sizes, names = [], set[int](), set[str]()
    history = read(request.folder)
    curves = [
        (series, entries[-1].device.name)
        for entries in _since(history.runs, request.since).values()
        for series in all_series(entries)
    ]
    for series, _ in curves:
        names |= _names(series.record)
    kernel = full_name(request.kernel, names)
    for series, device in curves:
        if not any(fnmatchcase(name, kernel) for name in _names(series.record)):
            continue
        sizes.add(series.record.n)
        if request.n is None or series.record.n in request.n:
            sections.append(_curve_section(series, device))
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


def _names(record: Record) -> set[str]:
    return {record.kernel, record.engine or record.kernel}


def _curve_section(series: Series, device: str) -> Section:
    """The chart of one kernel's times, and a table row for each change point."""
    rows = []
    for before, after in zip(series.levels, series.levels[1:], strict=False):
        entry = series.points[after.first].entry
        cubins = {point.record.cubin_sha for point in series.points[before.first : after.end]}
        rows.append((
            f"{entry.created:%Y-%m-%d}", entry.revision, plain_text(before.us, 4),
            plain_text(after.us, 4), change_text(after.us / before.us),
            "unknown" if None in cubins else "same" if len(cubins) == 1 else "other",
        ))  # fmt: skip
    notes = [] if rows else ["no change point: no two successive runs differ from the others"]
    if len(rows) > 1:
        now, best = (plain_text(level.us, 4) for level in (series.last, series.best))
        notes.append(f"now {now}, {change_text(series.change)} against the best, {best}")
    if series.cards > 1:
        notes.append(
            f"{series.cards} cards: times scaled to the last by the ceilings of a read-only kernel"
        )
    if series.omitted:
        without = counted(series.omitted, "run")
        notes.append(f"{without} of another card without a ceiling left out")
    runs = counted(len(series.points), "run")
    return Section(
        f"{series.record.kernel}, {problem_text(series.record)}, us, {device}, {runs}",
        ("since", "revision", "old us", "new us", "change", "code"), tuple(rows), tuple(notes),
        texts=2, head=tuple(_curve(series)),
    )  # fmt: skip


#: The plot area in characters and lines.
_WIDTH, _HEIGHT = 68, 10
#: The smallest range of the y axis as a share of its top, so that noise does not fill the chart.
_MIN_RANGE = 0.02


def _curve(series: Series) -> list[str]:
    """A chart in plain characters: runs from left to right as `o`, levels between change points as
    lines, change points as `^` below the axis. A column shows the median of its runs if there are
    more runs than columns."""
    us = [point.us for point in series.points]
    columns = min(_WIDTH, len(us))
    column_of = [k * columns // len(us) for k in range(len(us))]
    medians = [median(us[k] for k, at in enumerate(column_of) if at == c) for c in range(columns)]
    values = medians + [level.us for level in series.levels]
    margin = max(0.0, _MIN_RANGE * max(values) - (max(values) - min(values))) / 2
    low, high = min(values) - margin, max(values) + margin

    def row(value: float) -> int:
        return min(_HEIGHT - 1, int((high - value) / (high - low) * _HEIGHT))

    cells = [[" "] * columns for _ in range(_HEIGHT)]
    marks = [" "] * columns
    for level in series.levels:
        for column in range(column_of[level.first], column_of[level.end - 1] + 1):
            cells[row(level.us)][column] = "-"
        marks[column_of[level.first]] = "^" if level.first else " "
    for column, value in enumerate(medians):
        cells[row(value)][column] = "o"
    digits = 4 if high < 10 * low else 3
    labels = {0: plain_text(high, digits), _HEIGHT - 1: plain_text(low, digits)}
    left = max(map(len, labels.values()))
    first, last = (f"{series.points[k].entry.created:%Y-%m-%d}" for k in (0, -1))
    gap = max(1, columns - len(first) - len(last))
    return [
        *(f" {labels.get(k, ''):>{left}} |{''.join(cells[k])}".rstrip() for k in range(_HEIGHT)),
        f" {'':>{left}} +{'-' * columns}",
        *([f" {'':>{left}}  {''.join(marks)}".rstrip()] if "^" in marks else []),
        f" {'':>{left}}  {first}" + (f"{'':>{gap}}{last}" if last != first else ""),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCheckRequest:
    """Options of `history check`; `threshold` is a share, None for the default."""

    folder: Path
    since: str | None
    threshold: float | None
    everything: bool
    outputs: Outputs


@dataclass(frozen=True, slots=True)
class Judged:
    """The times of one kernel over all runs, with the verdict. `latest`: the last run of the file
    timed the kernel."""

    file: str
    device: str
    series: Series
    verdict: Verdict
    latest: bool

    @property
    def record(self) -> Record:
        return self.series.record

    @property
    def change_pct(self) -> float:
        return 100 * (self.series.change - 1)


#: A series without a time in any of the last so many runs is not judged.
_RECENT = 10


def check(request: HistoryCheckRequest) -> int:
    """Judge every series. Returns 1 if one became slower and stayed so for two runs, 4 if no series
    has enough runs for a change point, else 0."""
    request.outputs.check(*files(request.folder))
    threshold = THRESHOLD if request.threshold is None else request.threshold
    history = read(request.folder)
    judged = [
        Judged(
            name, entries[-1].device.name, series, series.verdict(threshold),
            latest=series.points[-1].entry is entries[-1],
        )
        for name, entries in _since(history.runs, request.since).items()
        for series in all_series(entries) if series.points[-1].entry in entries[-_RECENT:]
    ]  # fmt: skip
    decided = any(map(_is_long, judged))
    why = f"Nothing was decided: no series has {FEWEST} recent runs; add more runs."
    skipped = [*([] if decided else [why]), *_skipped_lines(history)]
    sections = _judged_sections(judged, request, threshold, skipped)
    findings = [_finding(each) for each in judged]
    publish_findings(
        request.outputs, sections, findings, {"json": lambda: _judged_json(judged)},
        suite="cudareduce history", notes=skipped,
    )  # fmt: skip
    if any(each.verdict == "SLOWER" for each in judged):
        return 1
    return 0 if decided else 4


def _is_long(judged: Judged) -> bool:
    """Whether a series has enough runs for a change point to be found."""
    return len(judged.series.points) >= FEWEST


def _skipped_lines(history: History) -> list[str]:
    """A message that names the lines of history files that are not runs; empty without any."""
    skipped = history.omitted
    if not skipped:
        return []
    more = f"; and {len(skipped) - 3} more" if len(skipped) > 3 else ""
    return [f"left out, {counted(len(skipped), 'line')}: {'; '.join(skipped[:3])}{more}"]


def _since(
    history: Mapping[str, tuple[Entry, ...]], since: str | None
) -> Mapping[str, tuple[Entry, ...]]:
    """The history without runs before a day, or before the first run of a revision. Raises
    UsageError if no run is left."""
    if since is None:
        return {name: entries for name, entries in history.items() if entries}
    try:
        begin = moment(since)
    except ValueError:
        created = [
            entry.created for entries in history.values() for entry in entries
            if since in (entry.git or "")
        ]  # fmt: skip
        if not created:
            raise UsageError(
                f"--since {since} is neither a day, such as 2026-03-01, nor the revision of a run"
            ) from None
        begin = min(created)
    later = {
        name: kept for name, entries in history.items()
        if (kept := tuple(entry for entry in entries if entry.created >= begin))
    }  # fmt: skip
    if not later:
        raise UsageError(f"--since {since}: there are no later runs")
    return later


_ORDER: Mapping[Verdict, int] = {"SLOWER": 0, "MACHINE": 1, "SAME": 2}


def _judged_sections(
    judged: Sequence[Judged], request: HistoryCheckRequest, threshold: float, more: Sequence[str]
) -> list[Section]:
    """One table per kind of machine and reduction, to fit 80 columns, worst rows first; SAME rows
    only with --all. Notes and `more` follow the last table."""
    shown = sorted(
        (each for each in judged if request.everything or each.verdict != "SAME"),
        key=lambda each: (_ORDER[each.verdict], -each.series.change),
    )
    groups = group_by(shown, lambda each: (each.file, reduction_text(each.record)))

    def title(what: str, group: Iterable[Judged]) -> str:
        runs = max((len(each.series.points) for each in group), default=0)
        limit = f"limit {100 * threshold:g}%"
        parts = [str(request.folder), what, f"up to {counted(runs, 'run')}", limit]
        return ", ".join(filter(None, parts))

    sections = []
    for (_, reduction), group in groups.items():
        rows = tuple(
            (each.verdict, each.record.kernel, abbreviate(shape_text(each.record)),
             plain_text(each.series.best.us, 4), plain_text(each.series.last.us, 4),
             change_text(each.series.change), str(len(each.series.levels) - 1))
            for each in group
        )  # fmt: skip
        size = "n x rows" if any(each.record.rows != 1 for each in group) else "n"
        header = ("verdict", "kernel", size, "best us", "now us", "change", "steps")
        name = title(f"{group[0].device}, {reduction}", group)
        sections.append(Section(name, header, rows, texts=3))
    if not sections:
        devices = listed(sorted({each.device for each in judged}))
        sections = [Section(title(devices, judged), (), ())]
    notes = (*_notes(judged, shown, request.folder), *more)
    return [*sections[:-1], replace(sections[-1], notes=notes)]


def _notes(judged: Sequence[Judged], shown: Sequence[Judged], folder: Path) -> list[str]:
    counts = Counter(each.verdict for each in judged)
    summary = ", ".join(
        f"{counts[word]} {word}" for word in _ORDER if counts[word] or word != "MACHINE"
    )
    notes = [f"{counted(len(judged), 'series', 'series')}: {summary}"]
    young = sum(not _is_long(each) for each in judged)
    if young:
        notes.append(f"{young} of them have fewer than {FEWEST} runs, too few for a change point")
    absent = sum(not each.latest for each in judged)
    if absent:
        notes.append(f"{absent} of them have no time in the last run: not measured, or WRONG")
    if counts["MACHINE"]:
        notes.append("MACHINE: the same machine code was faster before, so the machine has changed")
    if counts["SLOWER"]:
        name = shown[0].record.engine or shown[0].record.kernel
        shell = shlex.join(["cudareduce", "history", "show", name, "--from", str(folder)])
        notes.append(f"next: {shell}; if the change is intended, pass --since with its date")
    return notes


def _finding(judged: Judged) -> Finding:
    """A series as a finding for a CI service."""
    series = judged.series
    text = f"{change_text(series.change)} against the best"
    text += f", in {counted(len(series.levels) - 1, 'step')}"
    if judged.verdict != "SAME":
        entry = series.points[series.last.first].entry
        text += f", the last since {entry.created:%Y-%m-%d}, {entry.revision}"
    outcome = {"SLOWER": "failed", "MACHINE": "skipped", "SAME": "passed"}[judged.verdict]
    return Finding(
        called(judged.record), problem_text(judged.record), judged.verdict, text,
        outcome, series.last.us / 1e6,  # type: ignore[arg-type]
    )  # fmt: skip


def _judged_json(judged: Iterable[Judged]) -> str:
    values = [
        {
            "kernel": called(each.record), "what": problem_text(each.record),
            "device": each.device, "verdict": each.verdict, "runs": len(each.series.points),
            "best_us": each.series.best.us, "now_us": each.series.last.us,
            "change_pct": each.change_pct,
            "levels": [
                {
                    "since": each.series.points[level.first].entry.created.isoformat(),
                    "revision": each.series.points[level.first].entry.git,
                    "runs": level.end - level.first, "us": level.us,
                }
                for level in each.series.levels
            ],
        }
        for each in judged
    ]  # fmt: skip
    return json.dumps(values, indent=1, allow_nan=False) + "\n"
