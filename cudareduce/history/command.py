"""`history`: add a run, draw a kernel's curve, and fail where one became slower and stayed so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.baseline import load_timed
from cudareduce.gate.verdicts import problem_text
from cudareduce.history.entries import Entry, moment
from cudareduce.history.folder import History, append, files, read
from cudareduce.history.picture import changes, curve
from cudareduce.history.series import THRESHOLD, Series, all_series
from cudareduce.history.telling import Judged, judged_finding, judged_json, judged_sections
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.ci import junit, tell_ci
from cudareduce.report.numbers import plain_text, short_size
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.section import Section
from cudareduce.report.sections import first_few
from cudareduce.report.terminal import print_sections

#: A kernel that none of so many runs has any more is not judged.
_RECENT = 10
#: So many lines that hold no run are told.
_FIRST_FEW = 3
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


def add(result: Path, folder: Path) -> int:
    """Append a run to the history; one that it holds is left. A result that cannot be compared is a
    UsageError."""
    path, new = append(load_timed(result), folder)
    say(f"{path} {'now holds' if new else 'held before'} the run of {result}")
    return 0


def show(request: ShowRequest) -> int:
    """Print the curve of each problem of a kernel, and its steps; 0."""
    sections, sizes, names = [], set[int](), set[str]()
    history = read(request.folder)
    for entries in _since(history.runs, request.since).values():
        for series in all_series(entries):
            record = series.record
            mine = (record.kernel, record.engine or record.kernel)
            names.update(mine)
            if not any(fnmatchcase(name, request.kernel) for name in mine):
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
    for line in _unread(history):
        say(line)
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
    unread = _unread(history)
    sections = judged_sections(
        judged, request.folder, threshold, unread, everything=request.everything
    )
    told = [judged_finding(one) for one in judged]
    publish(
        request.outputs, sections,
        {"junit": lambda: junit(told, "cudareduce history"), "json": lambda: judged_json(judged)},
        commands=tell_ci([one for one in told if one.outcome == "failed"], sections,
                         lambda kernel: None),
    )  # fmt: skip
    if (request.outputs.piped or request.outputs.style) in ("json", "junit"):
        for line in unread:  # for which these have no place
            say(line)
    return 1 if any(one.verdict == "SLOWER" for one in judged) else 0


def _unread(history: History) -> list[str]:
    """What is to be said of lines that hold no run."""
    found = history.left_out
    if not found:
        return []
    more = f"; and {len(found) - _FIRST_FEW} more" if len(found) > _FIRST_FEW else ""
    return [f"left out, {counted(len(found), 'line')}: {'; '.join(found[:_FIRST_FEW])}{more}"]


def _still_run(series: Series, entries: Sequence[Entry]) -> bool:
    return series.points[-1].entry in entries[-_RECENT:]


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
