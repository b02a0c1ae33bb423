"""Judged series as people and CI services read them: tables, findings, JSON."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.gate.verdicts import called, in_short, problem_text, reduction_text, shape_text
from cudareduce.history.picture import day
from cudareduce.history.series import Series, Verdict
from cudareduce.history.steps import FEWEST
from cudareduce.problem.sizes import counted
from cudareduce.report.ci import Finding
from cudareduce.report.numbers import plain_text
from cudareduce.report.section import Section
from cudareduce.report.sections import listed

_ORDER: Mapping[Verdict, int] = {"SLOWER": 0, "MACHINE": 1, "SAME": 2}


@dataclass(frozen=True, slots=True)
class Judged:
    """A series of one kind of machine, whose file and GPU are named, its verdict, and whether its
    last run is the latest one."""

    file: str
    device: str
    series: Series
    verdict: Verdict
    latest: bool


def judged_sections(
    judged: Sequence[Judged], folder: Path, threshold: float, more: Sequence[str], *,
    everything: bool,
) -> list[Section]:  # fmt: skip
    """A table for each kind of machine and reduction, so that each fits 80 columns, the worst
    first; `everything` shows what is the SAME, too. Notes, and `more`, stand below the last."""
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
    told = ", ".join(
        f"{counts[word]} {word}" for word in _ORDER if counts[word] or word != "MACHINE"
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
        worst = shown[0].series.record
        name = worst.engine or worst.kernel
        shell = shlex.join(["cudareduce", "history", "show", name, "--from", str(folder)])
        notes.append(f"next: {shell}; where it is meant, judge from then on with --since")
    return notes


def judged_finding(one: Judged) -> Finding:
    """What a CI service is told of a series."""
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
    """Series with their levels, as JSON."""
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
